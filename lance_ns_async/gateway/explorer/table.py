"""The page of a table, and the page of the difference between two of its versions."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.errors import shortened
from lance_ns_async.gateway.explorer.cells import Cells, cells
from lance_ns_async.gateway.explorer.layout import FailedPart, Page, shown_properties
from lance_ns_async.gateway.explorer.reading import CatalogReader, outcome, run_all
from lance_ns_async.gateway.explorer.rows import MAX_FIND, PAGE_ROWS, View, count_matches, read_rows
from lance_ns_async.gateway.explorer.snippets import select_link, snippets
from lance_ns_async.masked import without_user
from lance_ns_async.operations import searching
from lance_ns_async.spec.arrow_json import arrow_schema
from lance_ns_async.storage.datasets import operation_names

if TYPE_CHECKING:
    from lance import LanceDataset

_VERSIONS = 20
_MAX_ENTRIES = 100  # Maximum number of tags, of branches and of indices.

_MAX_FIELDS = 1_000
_MAX_TYPE = 500  # Maximum number of characters of a type.
_NEW_ROWS = 20
_UNIT = re.compile(r"\[(?:s|ms|us|ns)\]")  # Of a timestamp, a duration, time32 and time64.

_OF_TABLES = (err.TableNotFoundError, err.PermissionDeniedError)
_OF_STATES = (err.TableVersionNotFoundError, err.TableBranchNotFoundError)
"""The errors of a part that are those of the whole page."""


@dataclass(frozen=True, slots=True)
class Description:
    """What the catalog says about a table."""

    location: str
    properties: dict[str, str]
    is_managed: bool
    is_declared: bool


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """A version, and what made it."""

    version: int
    before: int | None  # The version before it on the branch; None if there is none.
    time: int | None
    rows: int | None
    added: int | None  # The number of rows beyond those of the version before; negative for fewer.
    operation: str | None


async def table_page(reader: CatalogReader, view: View, address: str) -> Page:
    """Returns the page of a table; its parts are read concurrently, and each shows its own error.

    Args:
        reader: The catalog.
        view: The table, its state, and the rows to show.
        address: The address of the gateway.
    """
    parts: dict[str, Coroutine[Any, Any, Any]] = {
        "description": _describe(reader, view),
        "rows": read_rows(reader, view),
        "matches": count_matches(reader, view),
        "schema": _schema(reader, view),
        "versions": _versions(reader, view),
        "tags": reader.read("list_table_tags", id=list(view.id), limit=_MAX_ENTRIES),
        "branches": reader.read("list_table_branches", id=list(view.id), limit=_MAX_ENTRIES),
        "indices": reader.read("list_table_indices", id=list(view.id), limit=_MAX_ENTRIES),
        "stats": reader.read("get_table_stats", id=list(view.id)),
    }
    results = dict(zip(parts, await run_all(map(outcome, parts.values())), strict=True))
    for name, part in results.items():
        if isinstance(part, FailedPart) and isinstance(part.error, _OF_TABLES if name == "description" else _OF_STATES):
            raise part.error
    values = {
        **results,
        "view": view,
        "snippets": snippets(view.id, address, view.version, view.branch),
        "select_link": select_link(view),
        "max_find": MAX_FIND,
        "max_entries": _MAX_ENTRIES,
        "page_rows": PAGE_ROWS,
    }
    return Page(view.id.name, "table.html", values, below=view.id.parent)


async def _describe(reader: CatalogReader, view: View) -> Description:
    it = await reader.read("describe_table", id=list(view.id), vend_credentials=False, check_declared=True)
    location = without_user(it.location or "unknown")
    return Description(
        location, dict(shown_properties(it.properties)), bool(it.managed_versioning), bool(it.is_only_declared)
    )


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table: their names, types, and whether they may be null."""

    columns: Sequence[tuple[str, str, bool]]
    number: int  # Number of all columns.
    vectors: Sequence[str]  # The names of those that a vector can search.


async def _schema(reader: CatalogReader, view: View) -> Schema:
    request = {"id": list(view.id), "load_detailed_metadata": True, **view.state}
    is_read = True
    try:
        fields = [*await reader.read_dataset(view.id, lambda it: it.schema, view.snapshot)]
    except err.UnsupportedOperationError:
        is_read = False
        described = (await reader.read("describe_table", **request)).var_schema
        fields = [] if described is None else [*arrow_schema(described)]

    def text(type: pa.DataType) -> str:
        # Descriptions have no units.
        return shortened(str(type) if is_read else _UNIT.sub("", str(type)), _MAX_TYPE)

    shown = [(it.name, text(it.type), it.nullable) for it in fields[:_MAX_FIELDS]]
    return Schema(shown, len(fields), [it.name for it in fields if searching.dimension(it.type)])


async def _versions(reader: CatalogReader, view: View) -> Sequence[VersionFacts]:
    """Returns the newest versions. Cost: one listing, one open, and two requests a version for their operations."""
    request = {"id": list(view.id), "branch": view.branch, "limit": _VERSIONS + 1, "descending": True}
    versions = (await reader.read("list_table_versions", **request)).versions
    numbers = [it.version for it in versions[:_VERSIONS]]
    names = [(it.metadata or {}).get("operation") for it in versions[:_VERSIONS]]
    if numbers and None in names:
        read = await outcome(
            reader.read_dataset(view.id, lambda it: operation_names(it, numbers), view.snapshot_of_branch)
        )
        names = names if isinstance(read, FailedPart) else list(read)
    rows = [int(it) if (it := (one.metadata or {}).get("total_rows", "")).isdecimal() else None for one in versions]
    return [
        VersionFacts(
            *(it.version, before and before.version, it.timestamp_millis, count),
            None if count is None or count_before is None else count - count_before,
            name,
        )
        for it, before, name, count, count_before in zip(
            versions, [*versions[1:], None], names, rows, [*rows[1:], None], strict=False
        )
    ]


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from one version to another."""

    columns: Sequence[tuple[str, str | None, str | None]]  # The name, the type before and the type after.
    rows: tuple[int, int]
    new: tuple[str, int]  # What happened to the rows of added fragments, and their number.
    gone: tuple[str, int]  # What happened to rows that are no longer where they were, and their number.
    files: tuple[int, int]  # Numbers of fragments that were removed and added.
    operations: Sequence[tuple[int, str | None]]
    new_rows: Cells


_NEW_BY = {"Append": "added", "Overwrite": "added", "Update": "added updated", "Rewrite": "rewritten"}
_GONE_BY = {"Delete": "deleted", "Overwrite": "deleted", "Update": "updated deleted", "Rewrite": "rewritten"}
"""What operations do to rows that get another place, and to those whose place was left."""


def _done(operations: Set[str | None], words: Mapping[str, str]) -> str:
    """Returns what the operations may have done; all words if an operation is unknown."""
    found = " ".join(word for name, word in words.items() if name in operations or None in operations)
    return " or ".join(dict.fromkeys(found.split())) or "changed"


async def changes_page(reader: CatalogReader, view: View, before: int, after: int) -> Page:
    """Returns the page of the difference of two versions."""
    if not 1 <= before < after:
        raise err.InvalidInputError(f"from {before} to {after}: the first version must be below the second")

    def read(dataset: LanceDataset) -> Difference:
        old = dataset.checkout_version(before)
        types, new_types = ({it.name: str(it.type) for it in one.schema} for one in (old, dataset))
        both = {name: (types.get(name), new_types.get(name)) for name in [*types, *new_types]}
        ids = {it.fragment_id for it in old.get_fragments()}
        fragments = dataset.get_fragments()
        added = [it for it in fragments if it.fragment_id not in ids]
        numbers = range(max(before + 1, after - _VERSIONS + 1), after + 1)
        columns = dataset.schema.names[:_NEW_ROWS]
        operations = list(zip(numbers, operation_names(dataset, numbers), strict=True))
        done = {name for _, name in operations} | ({None} if len(numbers) < after - before else set())
        new = _done(done, _NEW_BY)
        is_shown = added and new != "rewritten"
        rows = dataset.scanner(columns=columns, fragments=added, limit=_NEW_ROWS).to_table() if is_shown else None
        totals = (old.count_rows(), dataset.count_rows())
        new_rows = sum(it.count_rows() for it in added)
        return Difference(
            [(name, *pair) for name, pair in both.items() if pair[0] != pair[1]],
            totals,
            (new, new_rows),
            (_done(done, _GONE_BY), totals[0] - totals[1] + new_rows),
            (len(ids) - len(fragments) + len(added), len(added)),
            operations,
            Cells((), ()) if rows is None else cells(rows),
        )

    snapshot = View(view.id, after, view.branch).snapshot
    values = {
        "view": view,
        "before": before,
        "after": after,
        "difference": await reader.read_dataset(view.id, read, snapshot),
    }
    return Page(f"Changes of {view.id.name}", "changes.html", values, below=view.id.parent)
