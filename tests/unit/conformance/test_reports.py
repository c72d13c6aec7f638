"""Reports in each format, and the ways to run the kit: in Python, by the command, and by pytest itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lance.namespace import RestAdapter
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError

from lance_ns_async.cli import conformance
from lance_ns_async.conformance import FEATURES, Check, Report, Result, class_target, run, server_target
from lance_ns_async.conformance.plugin import Call
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.rest import FakeRest
from tests.support.commands import Run

pytestmark = pytest.mark.long


CALL = Call("drop_table", {"id": ["a", "<b>"]}, "TableNotFoundError (code 4): a$<b>")
REPORT = Report(
    "a <catalog>",
    [
        Check("tables", "a table is found", Result.OK),
        Check("tables", "a table is dropped", Result.WRONG, "it is <still> there", [CALL]),
        Check("rows", "rows are counted", Result.UNSUPPORTED, "not by this catalog"),
    ],
    ["a.b: it stays"],
    date="2026-01-31",
)


def test_a_report_counts_and_judges_and_has_the_calls(tmp_path: Path) -> None:
    assert conformance.FEATURES == FEATURES
    assert REPORT.line() == "a <catalog>: 1 ok, 1 wrong, 1 not supported" and not REPORT.conforms
    assert Report("x", REPORT.checks[:1]).conforms and not Report("x", REPORT.checks[2:]).conforms
    REPORT.write(tmp_path / "new")
    [file] = (tmp_path / "new").iterdir()
    assert file.name == "conformance.json" and file.read_text() == REPORT.to_json()
    value = json.loads(REPORT.to_json())
    assert value["summary"] == {"ok": 1, "not supported": 1, "wrong": 1} and value["date"] == "2026-01-31"
    call = {"operation": "drop_table", "request": {"id": ["a", "<b>"]}, "answer": CALL.answer}
    assert value["checks"][1]["calls"] == [call] and value["leftovers"] == ["a.b: it stays"]


def test_targets_must_be_there() -> None:
    with pytest.raises(InvalidInputError, match=r"class 'os\.Missing': module 'os' has no attribute"):
        class_target("os.Missing", {})
    with pytest.raises(InvalidInputError, match=r"it is no subclass of lance_namespace\.LanceNamespace"):
        class_target("pathlib.Path", {})
    with pytest.raises(InvalidInputError, match=r"pass the address as http://HOST:PORT"):
        server_target("localhost:2333")
    with pytest.raises(ServiceUnavailableError, match="did not respond to list_namespaces"):
        run(server_target("http://127.0.0.1:9"))
    with pytest.raises(InvalidInputError, match="feature 'tales': there is none; use reading"):
        run(server_target("http://127.0.0.1:9"), features=["tales"])


def test_secrets_are_in_no_report(tmp_path: Path) -> None:
    hush = {"root": str(tmp_path), "storage.secret_access_key": "hush"}
    target = class_target("lance_ns_async.DirNamespace", hush)
    report = run(target, features=["listing"])
    assert report.conforms and "hush" not in report.to_json() + repr(target)


def test_a_location_that_stays_taken_is_called_so(tmp_path: Path) -> None:
    with FakeLakekeeper(base=tmp_path.as_uri(), soft=True) as server:
        report = run(class_target("lance_ns_async.LakekeeperNamespace", server.properties), features=["tables"])
    [check] = [it for it in report.checks if it.name == "a registered table is described at its location"]
    assert "LocationAlreadyTaken" in check.reason and "relative" not in check.reason


def test_an_operation_that_a_server_has_no_route_for_is_not_supported(tmp_path: Path) -> None:
    name = "a renamed table keeps its location"
    with FakeRest(base=tmp_path.as_uri(), lacks=["table/rename"]) as server:
        [check] = run(server_target(server.url), features=["tables"], checks=[name]).checks
    assert (check.name, check.result) == (name, Result.UNSUPPORTED) and "HTTP 404 for rename_table" in check.reason


def test_the_command_shows_what_is_wrong(tmp_path: Path) -> None:
    with RestAdapter("dir", {"root": str(tmp_path / "lake")}, port=0) as server:
        url = f"http://127.0.0.1:{server.port}"
        options = ("conformance", "--server", url, "--feature", "listing", "--report", str(tmp_path / "report"))
        done = Run(*options)
        assert done.code == 1
        assert re.search(r"^listing +a missing namespace is not an empty one +wrong +expected Namesp", done.out, re.M)
        assert f"{url}: " in done.err and " wrong, " in done.err
        assert json.loads((tmp_path / "report" / "conformance.json").read_text())["target"] == url


def test_the_command_tests_the_catalog_of_the_options(tmp_path: Path) -> None:
    done = Run("-i", "dir", "-p", f"root={tmp_path}", "conformance", "--read-only", "--json")
    assert done.code == 0, done.err
    assert {it["feature"] for it in json.loads(done.out)} == {"reading"} and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--class", "os.Missing"), "class 'os.Missing'"),
        (("--class", "a.B", "--server", "http://x"), "--class and --server: use one of them"),
        (("--server", "http://x", "--header", "hush"), "--header: must be NAME=VALUE"),
        (("--server", "http://x", "--feature", "tales"), "--feature tales: there is none"),
    ],
)
def test_the_command_names_wrong_options(options: tuple[str, ...], message: str) -> None:
    done = Run("conformance", *options)
    assert done.code == 2 and message in done.err and "hush" not in done.err


def test_pytest_runs_the_kit_by_its_plugin(tmp_path: Path) -> None:
    plugin = ("-p", "lance_ns_async.conformance.plugin", "--pyargs", "lance_ns_async.conformance.checks.test_reading")
    target = ("--conformance-class", "lance_ns_async.DirNamespace", "--conformance-property", f"root={tmp_path}/lake")
    command = (sys.executable, "-m", "pytest", "-q", *plugin, *target, "--conformance-report", str(tmp_path))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "9 passed" in done.stdout, done.stdout
    assert json.loads((tmp_path / "conformance.json").read_text())["summary"]["ok"] == 9
