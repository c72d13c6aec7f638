"""The command `copy`: its two catalogs, its rows, its summary and its exit codes."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, DeregisterTableRequest

from lance_ns_async import Namespace
from lance_ns_async.cli.errors import Code, Misuse
from lance_ns_async.cli.whole_catalogs import choose_target, parse_rules
from tests.fakes.iceberg import FakeIceberg
from tests.support.commands import Run


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
    assert (dry.code, sorted(dry.lines)) == (
        0,
        ["sales$Items\tlake$Items\twould create\t", "sales$orders\tlake$orders\twould create\t"],
    )
    assert "copy (dry run): 2 would create" in dry.err and not listing(iceberg)
    first = Run("copy", *where, "--journal", str(tmp_path / "journal"), "-o", "csv")
    assert first.code == 0 and [row["outcome"] for row in csv.DictReader(first.lines)] == ["created", "created"]
    assert listing(iceberg) == ["lake$Items", "lake$orders"]
    again = Run("copy", *where, "--journal", str(tmp_path / "journal"), "-o", "json")
    rows = json.loads(again.out)
    assert again.code == 0 and sorted((row["outcome"], row["target"]) for row in rows) == [
        ("unchanged", "lake$Items"),
        ("unchanged", "lake$orders"),
    ]
    assert "copy: 2 unchanged" in again.err


def test_sync_with_delete_removes_registrations(root: Path, iceberg: FakeIceberg) -> None:
    where = between(root, iceberg)
    assert Run("copy", *where).code == 0
    with Namespace.connect("dir", {"root": str(root)}) as source:
        source.deregister_table(DeregisterTableRequest(id=["stock", "parts"]))
    assert "deregistered" in Run("copy", *where, "--mode", "sync", "--delete").out
    assert listing(iceberg) == ["sales$Items", "sales$orders"]


def test_copy_fails_for_refused_tables(root: Path, iceberg: FakeIceberg) -> None:
    where = ("--to", "sales=all", "--to", "stock=all", *between(root, iceberg))
    with Namespace.connect("dir", {"root": str(root)}) as source:
        source.declare_table(DeclareTableRequest(id=["stock", "orders"]))
    run = Run("copy", *where)
    assert run.code == Code.FAILURE and "2 refused" in run.err and "not tried" in run.out and not listing(iceberg)
    run = Run("copy", *where, "--partial", "--rename", "lower")
    assert run.code == Code.FAILURE and listing(iceberg) == ["all$items", "all$parts"]


def test_the_target_is_a_profile_or_variables(
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
def test_bad_arguments_are_usage_errors(
    root: Path, iceberg: FakeIceberg, arguments: tuple[str, ...], problem: str
) -> None:
    run = Run("copy", *arguments, *between(root, iceberg))
    assert run.code == Code.USAGE and problem in run.err and not iceberg.requests


def test_a_journal_of_another_run_is_a_usage_error(root: Path, iceberg: FakeIceberg, tmp_path: Path) -> None:
    journal = ("--journal", str(tmp_path / "journal"))
    iceberg.fail(403, match="POST .*/tables", times=1)
    assert Run("copy", "sales.**", *between(root, iceberg), *journal).code == Code.FAILURE
    iceberg.clear()
    run = Run("copy", "stock.**", *between(root, iceberg), *journal)
    assert run.code == Code.USAGE and "belongs to another run (what is" in run.err and not iceberg.requests


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


def test_rules() -> None:
    assert parse_rules([]) is None
    assert parse_rules(["lake", "hive=old", "tmp="]) == {"": "lake", "hive": "old", "tmp": ""}
