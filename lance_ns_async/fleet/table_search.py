"""Search for tables by their content: columns, rows, sizes, ages, indexes and properties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableNotFoundError

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.fleet.conditions import Conditions, Facts, read_facts
from lance_ns_async.fleet.reading import read_and_examine
from lance_ns_async.fleet.run import Report, failure_row, start
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.model import Table
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.session import Session
from lance_ns_async.tabular import Row

MATCH = "match"

SORT_KEYS = ("id", "rows", "size", "versions", "version", "last_write")


async def find(
    namespace: AsyncNamespace,
    what: What,
    where: Conditions | Callable[[Facts], bool] | None = None,
    *,
    sort: str = "id",
    limit: int | None = None,
    progress: bool | ProgressCallback = False,
) -> Report:
    """Finds tables by their content.

    Args:
        namespace: The catalog.
        what: Ids and patterns of tables.
        where: Conditions, or a function that returns whether a table is included; it runs in the event loop.
        sort: One of `SORT_KEYS`, with `-` in front for the largest first.
        limit: Maximum number of tables, after sorting; None returns all.
        progress: Shows a bar in a terminal or notebook, or receives the number of completed tables and the total.

    Returns:
        A row "match" for each table, sorted, with its facts as fields; after these a row for each table that could not
            be opened. Tables to which nothing was written do not match.

    Raises:
        InvalidInputError: `sort`, `limit` or an id is invalid; nothing was called.

    Cost:
        The listings, a bulk describe, one call for each namespace, and one open for each table.
    """
    key = sort.removeprefix("-")
    if key not in SORT_KEYS:
        raise InvalidInputError(f"sort {sort!r}: use one of {', '.join(SORT_KEYS)}, with - in front for descending")
    if limit is not None and limit < 1:
        raise InvalidInputError(f"limit {limit}: must be at least 1, or None for all")
    session, selection = namespace.session, Selection.read(what)
    now = datetime.now(UTC)
    with start("find", namespace, progress=progress) as run:
        matches: list[Facts] = []
        failures: list[Row] = []

        async def examine(table: Table) -> None:
            try:
                facts = await _facts(session, table)
            except TableNotFoundError:
                # Nothing was written to the table, or it was dropped after the listing.
                run.counters["without data"] += 1
            except LanceNamespaceError as e:
                failures.append(failure_row(table.id, e, table.location))
            else:
                if where is None or (where.match(facts, now) if isinstance(where, Conditions) else where(facts)):
                    matches.append(facts)

        reading = await read_and_examine(session, selection, examine, run)
        matches = [facts for facts in matches if facts.id in reading.tables]
        for facts in _select(matches, key, descending=sort.startswith("-"), limit=limit):
            run.add(Row(facts.id, MATCH, "", facts.location, fields=_fields(facts)))
        for row in (*failures, *reading.failure_rows()):
            run.add(row)
        return run.report(shown_outcomes=frozenset({MATCH}))


def _select(matches: Sequence[Facts], key: str, *, descending: bool, limit: int | None) -> Sequence[Facts]:
    by_id = sorted(matches, key=lambda facts: facts.id)
    return sorted(by_id, key=lambda facts: getattr(facts, key), reverse=descending)[:limit]


async def _facts(session: Session, table: Table) -> Facts:
    table = await session.with_credentials(table)
    return await session.open_and_run(
        table, lambda dataset: read_facts(table.id, table.location, table.properties or {}, dataset)
    )


def _fields(facts: Facts) -> dict[str, Any]:
    return {
        "rows": facts.rows,
        "size": facts.size,
        "version": facts.version,
        "versions": facts.versions,
        "last_write": facts.last_write.isoformat(timespec="seconds"),
        "columns": [f"{field.name}:{field.type}" for field in facts.schema],
        "indexes": [f"{index.name}({','.join(index.columns)}):{index.stale_rows} stale" for index in facts.indexes],
    }
