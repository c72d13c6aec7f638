"""Folders of tables for a discovery, and folders that only look like tables."""

from __future__ import annotations

from pathlib import Path

from lance_ns_async.fleet.run import Report


def make_file(root: Path, path: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def make_table(root: Path, path: str, manifest: str = "18446744073709551614.manifest") -> None:
    """Creates a folder with the files of a table, whose manifest and data are empty."""
    for name in (f"_versions/{manifest}", "_transactions/0-1.txn", "data/1.lance"):
        make_file(root, f"{path}/{name}")


def make_traps(root: Path) -> None:
    """Creates folders that a discovery must not treat as tables."""
    make_table(root, "traps/outer.lance")
    make_table(root, "traps/outer.lance/inner.lance")
    make_table(root, "traps/outer.lance/tree/branch")
    make_file(root, "traps/outer.lance/_indices/1/_versions/1.manifest")
    (root / "traps/empty.lance/_versions").mkdir(parents=True)
    (root / "traps/nothing.lance").mkdir()
    make_file(root, "traps/staged/_versions/1.manifest-8f14")
    make_file(root, "traps/detached/_versions/d1.manifest")
    make_file(root, "traps/detached/tree/branch/_versions/1.manifest")
    make_table(root, "traps/.lance-ns-dropped-1/t.lance")
    make_table(root, "traps/_temporary/t.lance")
    make_file(root, "traps/parquet/day=1/part-0.parquet")
    (root / "traps/link").symlink_to(root / "traps/outer.lance", target_is_directory=True)


def table_counts(report: Report) -> dict[str, int]:
    """Returns the number of tables by outcome, without the rows about what a target does not keep."""
    return {outcome: count for outcome, count in report.counts.items() if outcome != "not kept"}
