"""Commands that work on whole catalogs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest

from lance_ns_async import Namespace
from lance_ns_async.cli.errors import Code, Misuse
from lance_ns_async.cli.whole_catalogs import choose_target
from tests.fakes.iceberg import FakeIceberg
from tests.support.commands import Run
from tests.support.lake import make_table


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with three tables in two namespaces."""
    root = tmp_path / "source"
    with Namespace.connect("dir", {"root": str(root)}) as source:
        for name in ("sales", "stock"):
            source.create_namespace(CreateNamespaceRequest(id=[name]))
        for id in (["sales", "orders"], ["sales", "Items"], ["stock", "parts"]):
            source.declare_table(DeclareTableRequest(id=id))
    return root


@pytest.fixture
def iceberg() -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        yield server


def between(root: Path, server: FakeIceberg) -> tuple[str, ...]:
    source = ("-i", "dir", "-p", f"root={root}")
    target = ("--to-impl", "iceberg", "--to-property", f"endpoint={server.endpoint}", "--to-property")
    return (*source, *target, f"root={root.as_uri()}")


def listing(server: FakeIceberg) -> list[str]:
    return sorted(Run("ls", "-r", "-i", "iceberg", "-p", f"endpoint={server.endpoint}").lines)


def test_copy_registers_and_repeats(root: Path, iceberg: FakeIceberg, tmp_path: Path) -> None:
    where = ("sales.*", "--to", "sales=lake", *between(root, iceberg))
    dry = Run("copy", *where, "--dry-run", "-o", "plain")
    planned = [f"sales${name}\tlake${name}\twould create\t" for name in ("Items", "orders")]
    assert (dry.code, dry.lines) == (0, planned)
    rows = json.loads(Run("copy", *where, "--dry-run", "--json").out)
    assert [row["outcome"] for row in rows] == ["would create", "would create"]
    assert "copy (dry run): 2 would create" in dry.err and not listing(iceberg)
    first = Run("copy", *where, "--journal", str(tmp_path / "journal"), "-o", "csv")
    assert first.code == 0 and [row["outcome"] for row in csv.DictReader(first.lines)] == ["created", "created"]
    assert listing(iceberg) == ["lake$Items", "lake$orders"]
    again = Run("copy", *where, "--journal", str(tmp_path / "journal"), "-o", "json")
    rows = [(row["outcome"], row["target"]) for row in json.loads(again.out)]
    assert again.code == 0 and rows == [("unchanged", "lake$Items"), ("unchanged", "lake$orders")]
    assert "copy: 2 unchanged" in again.err


def test_copy_between_directories_names_the_option_that_clones(root: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    where = ["-i", "dir", "-p", f"root={root}", "--to-impl", "dir", "--to-property", f"root={tmp_path / 'target'}"]
    run = Run("copy", *where)
    assert run.code == 1 and "; use --data to clone the data" in run.out
    run = Run("copy", *where, "--data", "--dry-run")
    assert run.code == 0 and "would create" in run.out and "created" not in run.out + run.err


def test_copy_fails_for_refused_tables(root: Path, iceberg: FakeIceberg) -> None:
    where = ("--to", "sales=all", "--to", "stock=all", *between(root, iceberg))
    with Namespace.connect("dir", {"root": str(root)}) as source:
        source.declare_table(DeclareTableRequest(id=["stock", "orders"]))
    run = Run("copy", *where)
    assert run.code == Code.FAILURE and "2 refused" in run.err and "not tried" in run.out and not listing(iceberg)
    run = Run("copy", *where, "--partial", "--rename", "lower")
    assert run.code == Code.FAILURE and listing(iceberg) == ["all$items", "all$parts"]


def test_target_of_profile_or_variables(
    root: Path, iceberg: FakeIceberg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "catalogs.toml"
    file.write_text(
        f'[profiles.old]\nimpl = "dir"\nroot = "{root}"\n'
        f'[profiles.new]\nimpl = "iceberg"\nendpoint = "{iceberg.endpoint}"\nroot = "{root.as_uri()}"\n'
    )
    profiles = ("--config", str(file), "--profile", "old")
    run = Run("copy", *profiles)
    assert run.code == Code.USAGE and "--to-profile" in run.err
    assert Run("copy", "stock.**", *profiles, "--to-profile", "new").code == 0
    assert listing(iceberg) == ["stock$parts"]
    monkeypatch.setenv("LANCE_NS_TO_IMPL", "iceberg")
    monkeypatch.setenv("LANCE_NS_TO_PROPERTY_ENDPOINT", iceberg.endpoint)
    assert Run("copy", "sales.orders", *profiles).code == 0
    assert listing(iceberg) == ["sales$orders", "stock$parts"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--delete",), "needs mode 'sync'"),
        (("--data", "--take-over"), "omit one"),
        (("--to", "a=b", "--to", "a=c"), "rule for a already"),
        (("--mode", "mirror"), "mirror"),
    ],
)
def test_bad_arguments_are_reported(root: Path, iceberg: FakeIceberg, arguments: tuple[str, ...], problem: str) -> None:
    run = Run("copy", *arguments, *between(root, iceberg))
    assert run.code == Code.USAGE and problem in run.err and not iceberg.requests


def test_catalogs_that_fail_have_exit_codes(root: Path, iceberg: FakeIceberg) -> None:
    iceberg.fail(403, match="/namespaces/sales", times=None)
    assert Run("copy", *between(root, iceberg)).code == Code.NO_ACCESS
    gone = ("--to-impl", "iceberg", "--to-property", "endpoint=http://127.0.0.1:9", "--to-property", "max_retries=0")
    assert Run("copy", "-i", "dir", "-p", f"root={root}", *gone).code == Code.UNAVAILABLE


def test_settings_of_the_source_do_not_reach_the_target() -> None:
    environment = {"LANCE_NS_IMPL": "glue", "LANCE_NS_PROPERTY_REGION": "x", "LANCE_NS_TO_PROPERTY_ROOT": "/r"}
    catalog = choose_target("dir", None, None, None, environment)
    assert (catalog.impl, catalog.properties) == ("dir", {"root": "/r"})
    with pytest.raises(Misuse, match="no catalog to copy to"):
        choose_target(None, None, None, None, environment)


pytestmark = pytest.mark.floors


def test_discover_registers_and_repeats(tmp_path: Path) -> None:
    make_table(tmp_path, "sales/orders.lance")
    make_table(tmp_path, "sales/old/orders.lance")
    where = (str(tmp_path), "--into", "lake", "--exclude", "*/old", "-i", "dir", "-p", f"root={tmp_path}")
    dry = Run("discover", *where, "--dry-run", "-o", "plain")
    assert (dry.code, dry.lines) == (0, ["lake$sales$orders\twould register"])
    assert "discover (dry run): 1 would register" in dry.err and Run("discover", *where).code == 0
    again = Run("discover", *where, "-o", "json", "--journal", str(tmp_path / "journal"))
    assert json.loads(again.out)["counts"] == {"present": 1}
    assert Run("ls", "-r", "-i", "dir", "-p", f"root={tmp_path}").lines == ["lake$sales$orders"]


def test_discover_fails_for_conflicts_and_bad_arguments(tmp_path: Path) -> None:
    make_table(tmp_path, "t.lance")
    make_table(tmp_path, "t")
    where = ("--into", "n", "-i", "dir", "-p", f"root={tmp_path}")
    run = Run("discover", str(tmp_path), *where)
    assert run.code == Code.FAILURE and "conflict" in run.err
    assert Run("discover", str(tmp_path / "nothing"), *where).code == Code.USAGE


def test_a_drop_is_taken_back_and_an_expired_one_purged(root: Path) -> None:
    on = ("-i", "dir", "-p", f"root={root}")
    kept = Run("drop", "sales.orders", "--keep", "7d", "-y", *on)
    assert kept.code == 0 and "to undo it within 7 days: lance-ns undrop 'sales$orders'" in kept.err
    assert [row["id"] for row in json.loads(Run("dropped", "--json", *on).out)] == ["sales$orders"]
    assert Run("undrop", "sales.order", *on).code == Code.NOT_FOUND
    assert Run("create", "sales.orders", *on).code == 0
    taken = Run("undrop", "sales.orders", *on)
    assert taken.code == Code.FAILURE and "use --as ID" in taken.err and "as_" not in taken.err
    back = Run("undrop", "sales.orders", "--as", "stock.old", *on)
    assert back.out == "brought back stock$old\n" and Run("dropped", *on).err.startswith("dropped: nothing")
    assert Run("drop", "sales.orders", "stock.old", "--keep", "7d", "-y", *on).err.endswith(
        "; lance-ns dropped lists all\n"
    )
    assert Run("undrop", "sales.*", "--as", "a.b", *on).code == Code.USAGE
    many = Run("undrop", "sales.*", "stock.old", "stock.none", *on)
    assert many.code == Code.FAILURE and "stock$none" in many.err
    assert sorted(many.out.splitlines()) == ["brought back sales$orders", "brought back stock$old"]
    retention = ("-p", "drop_retention=1ms")
    asked = Run("drop", "stock.old", *on, *retention)
    assert asked.code == Code.USAGE and "Drop stock$old, and keep the data for 1 ms?" in asked.err
    assert "would keep the data for 1 day, 12 hours" in Run("drop", "stock.old", "--dry-run", "--keep", "36h", *on).err
    assert "would delete the data at once" in Run("drop", "stock.old", "--dry-run", *on).err
    assert Run("drop", "stock.old", "-y", *on, *retention).code == 0
    assert Run("purge", *on).code == Code.USAGE
    assert [row["outcome"] for row in json.loads(Run("purge", "--dry-run", "--json", *on).out)] == ["would purge"]
    assert [row["outcome"] for row in json.loads(Run("purge", "-y", "--json", *on).out)] == ["purged"]
    assert "--keep 'soon': not a duration" in Run("drop", "stock.parts", "--keep", "soon", "-y", *on).err
