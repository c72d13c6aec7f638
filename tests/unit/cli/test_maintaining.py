"""The command `maintain`, once and until a signal."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lance_ns_async import Namespace
from tests.support.commands import Run
from tests.support.processes import command


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a catalog with two tables of two fragments."""
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as namespace:
        for name in ("a", "b"):
            namespace.write([name], pa.table({"id": [1, 2]}))
            namespace.write([name], pa.table({"id": [3]}), mode="append")
    return ["--impl", "dir", "-p", f"root={tmp_path / 'lake'}"]


def test_a_dry_run_prints_the_plan_and_a_run_the_report(options: list[str], tmp_path: Path) -> None:
    options += ["--max-small-fragments", "1"]
    plan = Run("maintain", "*", "--dry-run", "-o", "json", *options)
    steps = {table["id"]: table["steps"] for table in json.loads(plan.out)["tables"]}
    assert plan.code == 0 and steps == {"a": ["compact"], "b": ["compact"]}
    table = Run("maintain", "*", "--dry-run", *options)
    assert "small_fragments" in table.out and "2 of 2 tables" in table.err
    left = Run("maintain", "*", "--dry-run", "--budget", "1B", *options)
    assert "compact (left)" in left.out and "0 of 2 tables" in left.err and "2 left for a later run" in left.err
    assert "2 left" in Run("maintain", "*", "--max-time", "0s", *options).err
    policies = tmp_path / "maintenance.toml"
    policies.write_text('[tables."a"]\nmaintain = false')
    assert "1 of 1 table" in Run("maintain", "*", "--dry-run", "--policies", str(policies), *options).err
    report = Run("maintain", "*", "-o", "json", *options)
    assert report.code == 0 and json.loads(report.out)["counts"] == {"maintained": 2}
    again = Run("maintain", "*", *options)
    assert again.code == 0 and again.out == "" and "2 unchanged" in again.err


def test_a_failed_table_has_an_exit_code(options: list[str], tmp_path: Path) -> None:
    for file in (tmp_path / "lake" / "a.lance" / "data").iterdir():
        file.write_bytes(b"no data")
    out = tmp_path / "report.parquet"
    result = Run("maintain", "*", "--max-small-fragments", "1", "--out", str(out), *options)
    assert result.code == 1 and "1 maintained" in result.err and "1 failed" in result.err
    assert sorted(pq.read_table(out)["outcome"].to_pylist()) == ["failed", "maintained"]


def test_versions_are_removed_by_age_and_number(options: list[str]) -> None:
    run = ["maintain", "a", "--no-compact", "--older-than", "any", "--delete-unverified", "-o", "json", *options]
    assert json.loads(Run(*run, "--retain", "2").out)["counts"] == {"unchanged": 1}
    assert json.loads(Run(*run).out)["counters"]["versions removed"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_goes_on_until_a_signal(options: list[str], tmp_path: Path, number: signal.Signals) -> None:
    forever = ("--every", "50ms", "--state", str(tmp_path / "state"), "--listen", "127.0.0.1:0", "-o", "json")
    with command("maintain", "*", "--max-small-fragments", "1", *forever, *options) as process:
        first, second = (json.loads(process.stdout.readline())["counts"] for _ in range(2))
        assert (first, second) == ({"maintained": 2}, {"unchanged": 2})
        (url,) = re.findall(r"http://\S+(?=/metrics)", process.errors())
        get = build_opener(ProxyHandler({})).open
        assert json.load(get(f"{url}/ready")) == {"status": "ok", "leader": True}
        assert json.load(get(f"{url}/health")) == {"status": "ok"}
        assert 'lance_ns_maintenance_results_total{outcome="maintained"} 2' in get(f"{url}/metrics").read().decode()
        with pytest.raises(HTTPError, match="404"):
            get(f"{url}/tables")
        process.send_signal(number)
        process.communicate()
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--every", "1m"], "pass --state, a folder that all instances share, or --no-lock"),
        (["--every", "1m", "--state", "s", "--no-lock"], "pass --state"),
        (["--every", "1m", "--no-lock", "--dry-run"], "not with --dry-run or --out"),
        (["--every", "1m", "--no-lock", "-o", "csv"], "the reports are lines of text, or with -o json lines of JSON"),
        (["--every", "soon", "--no-lock"], "--every 'soon'"),
        (["--every", "1m", "--no-lock", "--listen", "80"], "use HOST:PORT, such as 127.0.0.1:9102"),
        (["--every", "1m", "--no-lock", "--listen", "192.0.2.1:9"], "host 192.0.2.1, port 9: cannot listen there"),
        (["--every", "1m", "--state", "lake"], "the folder has other files, such as a.lance; use a new folder"),
        (["--no-lock"], "only with --every"),
        (["-p", "auth_token_file=@lake"], "-p auth_token_file=@lake: write the path without @"),
    ],
)
def test_wrong_options_of_every_are_explained(options: list[str], arguments: list[str], message: str) -> None:
    run = Run("maintain", "*", *arguments, *options)
    assert (run.code, run.out) == (2, "") and message in run.err
