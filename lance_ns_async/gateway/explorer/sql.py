"""The page for SQL over the tables that a token may read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lance_ns_async.gateway.explorer import layout
from lance_ns_async.gateway.explorer.layout import Markup, Page, html, link, name, visible
from lance_ns_async.gateway.explorer.pages import READ_SECONDS, show
from lance_ns_async.gateway.explorer.table import rows_table
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


async def sql_page(namespace: GrantedNamespace, text: str, memory: int) -> Page:
    """Returns the page with a statement and its rows, or with examples if the text is empty.

    Args:
        namespace: The namespace, with the rights of the browser's token.
        text: The statement.
        memory: The memory for DuckDB, in bytes.
    """
    body = html(
        '<h1>SQL</h1><form class="sql" action="/ui/sql"><label for="sql">One SELECT; FROM takes tables and patterns'
        '</label><textarea id="sql" name="q" rows="{}" required maxlength="{}" spellcheck="false" autocomplete="off"'
        "{}>{}</textarea><button>Run</button></form>{}",
        min(max(4, text.count("\n") + 2), 20),
        MAX_REMOTE_LENGTH,
        None if text else Markup(" autofocus"),
        # HTML drops a line end at the beginning of the text.
        "\n" + text,
        layout.section("Rows", await show(_run(namespace, text, memory))) if text.strip() else _examples(),
    )
    return Page("SQL", body)


async def _run(namespace: GrantedNamespace, text: str, memory: int) -> Markup:
    statement = text.strip().removesuffix(";")
    result = await namespace.sql(statement, max_rows=_MAX_ROWS + 1, memory_limit=memory, timeout=READ_SECONDS)
    if statement[: len("explain")].casefold() == "explain":
        return html("{}", [html('<pre tabindex="0">{}</pre>', plan) for plan in result.rows["plan"].to_pylist()])
    rows = result.rows.slice(0, _MAX_ROWS)
    count = f"The first {_MAX_ROWS} rows" if rows.num_rows < result.rows.num_rows else counted(rows.num_rows, "rows")
    return html(
        '<p role="status">{}{}</p>{}',
        count,
        _sources(result.versions),
        await asyncio.to_thread(rows_table, rows, "Rows", "No row matches."),
    )


def _sources(versions: Mapping[TableId, int]) -> Markup:
    """Returns links to the tables that were read."""
    tables = [
        html('{}<a href="{}">{}</a> at version {}', ", " if i else " of ", link("table", id), name(str(id)), version)
        for i, (id, version) in enumerate([*versions.items()][:_MAX_TABLES])
    ]
    more = len(versions) - len(tables)
    return html("{}{}", tables, f" and {more:,} more" if more > 0 else None)


def _examples() -> Markup:
    items = [html('<li><a href="{}"><code>{}</code></a></li>', link("sql", q=it), visible(it)) for it in _EXAMPLES]
    return layout.section("Examples", html('<ul class="examples">{}</ul>', items))
