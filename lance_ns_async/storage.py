"""What lies where a catalog says that a table is: opened, looked at, deleted. Reached without asking the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    TableBranchNotFoundError,
    TableNotFoundError,
)

from lance_ns_async import marks
from lance_ns_async.concurrency import each
from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Table, TableId
from lance_ns_async.threads import THREADS, in_thread

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

MAIN = "main"
"""What Lance calls the branch that is there without being made."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which state of a dataset is meant: a version or a tag, on a branch; all None for the latest on main."""

    version: int | None = None
    tag: str | None = None
    branch: str | None = None

    def __post_init__(self) -> None:
        if self.tag is not None and (self.version is not None or self.branch is not None):
            raise InvalidInputError(f"tag {self.tag!r}: a tag already names a version and a branch; give it alone")


LATEST = Snapshot()


@dataclass(frozen=True, slots=True)
class Details:
    """What opening a dataset tells."""

    version: int
    schema: pa.Schema
    rows: int
    fragments: int
    deleted_rows: int


async def details(table: Table, snapshot: Snapshot = LATEST) -> Details:
    """What the dataset tells in the state `snapshot` names; costs one open."""
    return await in_thread(table, lambda: told(opened(table, snapshot)))


def told(dataset: LanceDataset) -> Details:
    """What an open dataset tells; blocks: for `in_thread`."""
    stats = dataset.stats.dataset_stats()
    return Details(
        version=dataset.version,
        schema=dataset.schema,
        rows=dataset.count_rows(),
        fragments=stats["num_fragments"],
        deleted_rows=stats["num_deleted_rows"],
    )


async def is_only_declared(table: Table) -> bool:
    """Whether nothing was written to the table yet; costs one open."""
    try:
        await in_thread(table, lambda: opened(table))
    except TableNotFoundError:
        return True
    return False


async def written(tables: Sequence[Table]) -> Sequence[Table]:
    """Those of the tables that hold data, in their order; costs an open each, side by side."""
    declared: set[TableId] = set()

    async def check(table: Table) -> None:
        if table.version is None and await is_only_declared(table):
            declared.add(table.id)

    await each(check, tables, max_in_flight=THREADS)
    return [table for table in tables if table.id not in declared]


async def check_alone(table: Table) -> None:
    """Raises InvalidTableStateError where other datasets lie under the table's location; costs a listing of it."""
    if found := await in_thread(table, lambda: neighbours(table)):
        raise InvalidTableStateError(
            f"Invalid table state: {table.id} (drop_table would delete {len(found)} other tables that lie under its "
            f"location {table.location}, such as {found[0]}; deregister it, and move or drop those first)"
        )


async def drop(table: Table) -> None:
    """Deletes everything under the table's location; a location without a dataset counts as dropped."""
    try:
        await in_thread(table, lambda: delete(table), changes=True)
    except InvalidTableStateError:
        # A catalog's own files may lie where nothing was ever written by Lance.
        if not await is_only_declared(table):
            raise


async def tidy(table: Table) -> None:
    """Removes what a declaration leaves where nothing was written."""
    await in_thread(table, lambda: marks.remove(table.location, table.storage_options), changes=True)


async def clear(table: Table) -> None:
    """Deletes the data files of a table that has no version, and so holds none of them; costs a listing."""
    from lance.file import LanceFileSession

    def work() -> None:
        session = LanceFileSession(table.location, storage_options=options(table))
        for path in session.list():
            if path.startswith("data/"):
                session.delete_file(path)

    await in_thread(table, work, changes=True)


def neighbours(table: Table) -> Sequence[str]:
    """Where other datasets lie under the table's location; blocks: for `in_thread`."""
    from lance.file import LanceFileSession

    files = LanceFileSession(table.location, storage_options=options(table)).list()
    found = {path.partition("/_versions/")[0] for path in files if "/_versions/" in path}
    if any(place.startswith("tree/") for place in found):
        # There a dataset keeps its branches.
        found -= {f"tree/{branch}" for branch in opened(table).branches.list()}
    return sorted(found)


def delete(table: Table) -> None:
    """Deletes everything under the table's location; blocks: for `in_thread`."""
    import lance

    lance.LanceDataset.drop(table.location, storage_options=options(table), ignore_not_found=True)


def options(table: Table) -> dict[str, str] | None:
    """What Lance is to be told to reach the table's storage; None where there is nothing to tell."""
    return dict(table.storage_options or {}) or None


def opened(table: Table, snapshot: Snapshot = LATEST, **how: Any) -> LanceDataset:
    """The dataset in that state; what is missing is told apart: version, tag, branch, or all data.

    `how` says to pylance otherwise than by location and storage options where the dataset is, and which caches it
    shares. Blocks: for `in_thread`.
    """
    import lance

    if not how:
        how = {"uri": table.location, "storage_options": options(table)}
    if snapshot.branch in (None, MAIN):
        return lance.dataset(version=snapshot.tag if snapshot.tag is not None else snapshot.version, **how)
    dataset = lance.dataset(**how)
    try:
        return dataset.checkout_version((snapshot.branch, snapshot.version))
    except (OSError, ValueError) as e:
        # Lance misses a version where the whole branch is missing.
        check_branch(table, dataset, snapshot.branch, cause=e)
        raise


def check_branch(table: Table, dataset: LanceDataset, branch: str | None, *, cause: Exception | None = None) -> None:
    """Raises TableBranchNotFoundError where the dataset has no such branch; costs a listing of its branches."""
    if branch in (None, MAIN):
        return
    known = dataset.branches.list()
    if branch not in known:
        told = f"{table.id} (no branch {branch!r}; there are {', '.join([MAIN, *sorted(known)])})"
        raise TableBranchNotFoundError(f"{PHRASES[TableBranchNotFoundError]}: {told}") from cause
