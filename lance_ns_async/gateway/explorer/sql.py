"""The page for SQL over the tables that a token may read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lance_ns_async.gateway.explorer.cells import Cells, cells
from lance_ns_async.gateway.explorer.layout import Page
from lance_ns_async.gateway.explorer.reading import READ_SECONDS, outcome
from lance_ns_async.gateway.rights import GrantedNamespace
from lance_ns_async.model import TableId
from lance_ns_async.rendering import counted
from lance_ns_async.sql.restrictions import MAX_REMOTE_LENGTH

_MAX_ROWS = 100
_MAX_TABLES = 20  # Maximum number of tables that are named below the rows.

_EXAMPLES = (
    "SELECT * FROM sales.orders LIMIT 20",
    "SELECT _table, count(*) AS rows FROM sales.* GROUP BY ALL",
    "SELECT * FROM search('ml.docs', 'words', k => 5)",
    "DESCRIBE sales.orders",
)


@dataclass(frozen=True, slots=True)
class StatementResult:
    """What a statement shows."""

    count: str
    rows: Cells
    sources: Sequence[tuple[TableId, int]] = ()  # The tables that were read, and their versions.
    more_sources: int = 0
    plans: Sequence[str] = ()  # The plans, for EXPLAIN.


async def sql_page(namespace: GrantedNamespace, text: str, memory: int) -> Page:
    """Returns the page with a statement and its rows, or with examples if the text is empty.

    Args:
        namespace: The namespace, with the rights of the browser's token.
        text: The statement.
        memory: The memory for DuckDB, in bytes.
    """
    values = {
        "text": text,
        "lines": min(max(4, text.count("\n") + 2), 20),
        "max_length": MAX_REMOTE_LENGTH,
        "examples": _EXAMPLES,
        "result": await outcome(_run(namespace, text, memory)) if text.strip() else None,
    }
    return Page("SQL", "sql.html", values)


async def _run(namespace: GrantedNamespace, text: str, memory: int) -> StatementResult:
    statement = text.strip().removesuffix(";")
    result = await namespace.sql(statement, max_rows=_MAX_ROWS + 1, memory_limit=memory, timeout=READ_SECONDS)
    if statement[: len("explain")].casefold() == "explain":
        return StatementResult("", Cells((), ()), plans=result.rows["plan"].to_pylist())
    rows = result.rows.slice(0, _MAX_ROWS)
    count = f"The first {_MAX_ROWS} rows" if rows.num_rows < result.rows.num_rows else counted(rows.num_rows, "rows")
    sources = [*result.versions.items()]
    shown = await asyncio.to_thread(cells, rows)
    return StatementResult(count, shown, sources[:_MAX_TABLES], max(0, len(sources) - _MAX_TABLES))
