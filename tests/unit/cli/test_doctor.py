"""The commands `doctor` and `watch`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lance_ns_async import Namespace
from lance_ns_async.cli.errors import Code
from lance_ns_async.cli.secrets import lock
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.polaris import FakePolaris
from tests.support.commands import Run
from tests.unit.cli.test_app import at


def test_all_steps_succeed_with_a_catalog_that_works_with_and_without_tables(tmp_path: Path) -> None:
    run = Run("doctor", *at(tmp_path))
    assert run.code == 0 and run.lines[-2] == "ok      search for a table: there is none"
    assert run.lines[-1] == f"ok      storage at {tmp_path.as_uri()}: 0 entries"
    with FakeIceberg() as catalog:
        options = ["-p", f"endpoint={catalog.endpoint}", "-p", "root=s3://lake/a", "-p", "storage.region=eu-west-1"]
        options += ["-p", "storage.endpoint=http://127.0.0.1:9", "-p", "storage.allow_http=true"]
        options += ["-p", "storage.client_max_retries=0", "-p", "storage.skip_signature=true"]
        run = Run("doctor", "-i", "iceberg", *options)
    assert run.code == 5 and run.lines[-1].startswith("failed  storage at s3://lake/a: Service unavailable")
    run = Run("doctor", *at(tmp_path / "later"))
    assert run.code == 2 and run.lines[-1].endswith("the first namespace or table creates it")
    with Namespace.connect("dir", {"root": str(tmp_path)}) as catalog:
        catalog.create_namespace({"id": ["shop"]})
        catalog.write(["shop", "orders"], pa.table({"id": [1, 2]}))
    run = Run("doctor", *at(tmp_path))
    assert run.code == 0 and all(line.startswith("ok      ") for line in run.lines)
    assert run.lines[-1] == "ok      data of shop$orders: version 1, 2 rows, 1 column"
    assert [step["outcome"] for step in json.loads(Run("doctor", "-o", "json", *at(tmp_path)).out)] == ["ok"] * 6


def test_the_first_step_that_fails_is_the_last(tmp_path: Path) -> None:
    with FakeIceberg(token="right") as catalog:
        endpoint = ["-i", "iceberg", "-p", f"endpoint={catalog.endpoint}"]
        run = Run("doctor", *endpoint, "-p", "auth_token=wrong")
        assert run.code == 4 and run.lines[-1].startswith("failed  sign-in and listing: Unauthenticated")
        assert run.lines[1].startswith("ok      address: iceberg at 127.0.0.1:") and "wrong" not in run.out
        run = Run("doctor", "shop.gone", *endpoint, "-p", "auth_token=right")
        assert run.code == 3 and run.lines[-1].startswith("failed  description of shop$gone: ")
    run = Run("doctor", *endpoint)
    assert run.code == 5 and "is the port right, and the server up?" in run.lines[-1]
    run = Run("doctor", "-i", "iceberg", "-p", "endpoint=http://nothing.invalid")
    assert run.code == 5 and "the host nothing.invalid is unknown" in run.lines[-1]


@pytest.mark.parametrize(
    ("properties", "failed"),
    [
        ({"credential": "root:wrong", "catalogs": "cat"}, "Unauthenticated"),
        ({"credential": "root:s3cr3t", "catalogs": "absent"}, "Namespace not found: absent"),
        ({"credential": "root:wrong"}, "Unauthenticated"),
    ],
)
def test_a_listing_from_properties_alone_is_not_success(properties: dict[str, str], failed: str) -> None:
    with FakePolaris(credential=("root", "s3cr3t")) as catalog:
        catalog.add_namespace("cat", ("a",))
        options = [it for pair in properties.items() for it in ("-p", "=".join(pair))]
        run = Run("doctor", "-i", "polaris", "-p", f"endpoint={catalog.endpoint}", *options)
    assert run.code in (3, 4) and run.lines[-1].startswith(f"failed  sign-in and listing: {failed}")


@pytest.mark.parametrize("proxy", ["property", "environment"])
def test_a_host_behind_a_proxy_is_not_looked_up(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["-p", "max_retries=0"]
    if proxy == "property":
        options += ["-p", "proxy=http://127.0.0.1:1"]
    else:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    run = Run("doctor", "-i", "iceberg", "-p", "endpoint=http://nothing.invalid", *options)
    assert run.lines[1] == "ok      address: iceberg at nothing.invalid:80, through a proxy"
    assert run.code == 5


ROWS = pa.table({"id": [1]})


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a catalog with one table."""
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as namespace:
        namespace.create_namespace("s")
        namespace.write("s.a", ROWS)
    return ["--impl", "dir", "-p", f"root={tmp_path / 'lake'}"]


def change(tmp_path: Path) -> None:
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as namespace:
        namespace.write("s.a", ROWS, mode="append")
        namespace.write("s.b", ROWS)


def test_a_run_goes_on_where_the_last_one_ended(options: list[str], tmp_path: Path) -> None:
    state = tmp_path / "state"
    arguments = ["watch", "s.**", "--once", "--state", str(state), *options]
    assert (Run(*arguments).code, Run(*arguments).out) == (0, "")
    change(tmp_path)
    result = Run(*arguments, "--json")
    assert [(it["change"], it["id"], it["version"]) for it in map(json.loads, result.lines)] == [
        ("version", ["s", "a"], 2),
        ("created", ["s", "b"], 1),
    ]
    assert Run(*arguments).out == "" and state.stat().st_mode & 0o777 == 0o600
    (line,) = Run("watch", "s.a", "--once", "--existing", "--no-versions", *options).lines
    assert line.startswith("created     s$a  file:///")


def test_two_runs_cannot_use_one_file(options: list[str], tmp_path: Path) -> None:
    with lock(tmp_path / "state", 0.0):
        result = Run("watch", "s.**", "--once", "--state", str(tmp_path / "state"), *options)
    assert result.code == Code.USAGE and "state: in use by another lance-ns" in result.err
    assert not (tmp_path / "state").exists()


def test_changes_are_shown_until_an_interrupt(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lance_ns_async.cli", "watch", "s.**", "--existing", "--every", "0.01", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "created     s$a" in process.stdout.readline()
        change(tmp_path)
        assert "created     s$b" in (process.stdout.readline() + process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().startswith("lance-ns: watching s.**; Ctrl-C ends it")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--once"], "--once: pass --state FILE, or --existing"),
        (["--every", "0"], "--every 0.0, --examine-every 60.0: must be numbers of seconds above 0"),
        (["--state", "{junk}", "--once"], "--state: it is not the token of a change, or was cut off; begin anew"),
        (["--state", "{root}", "--once"], "Is a directory"),
    ],
)
def test_bad_options_are_usage_errors(options: list[str], tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "junk").write_text("junk")
    places = {"junk": tmp_path / "junk", "root": tmp_path}
    result = Run("watch", "s.**", *(it.format(**places) for it in arguments), *options)
    assert result.code == 2 and message in result.err and not result.out
