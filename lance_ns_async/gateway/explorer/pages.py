"""The pages: namespaces, search, tables, sign-in and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import TableNotFoundError

from lance_ns_async.errors import mask, shortened, without_user
from lance_ns_async.gateway.explorer import assets, values
from lance_ns_async.gateway.explorer.html import Markup, encode_pairs, html, link, name, visible
from lance_ns_async.gateway.explorer.reading import CatalogReader, show, show_error
from lance_ns_async.gateway.explorer.search import MAX_MATCHES, search
from lance_ns_async.gateway.explorer.snippets import snippets
from lance_ns_async.model import TableId

_PAGE = 100
_SAMPLE_ROWS = 20
_VERSIONS = 20
_MAX_FIELDS = 1_000
_MAX_PROPERTY = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page."""

    title: str
    body: Markup
    status: int = 200
    below: Sequence[str] = ()
    """The namespace that the page's search form searches."""
    search_text: str = ""


def document(page: Page, form_token: str | None) -> str:
    """Returns the whole document.

    Args:
        page: The content.
        form_token: The token of the sign-out form; None for a browser that is not signed in.
    """
    tools = None
    if form_token is not None:
        tools = html(
            '<form class="search" action="/ui/search" role="search"><input type="hidden" name="below" value="{}">'
            '<label class="hidden" for="q">Part of a name, below {}</label>'
            '<input id="q" type="search" name="q" value="{}" placeholder="{}" required maxlength="200">'
            '<button>Search</button></form><form action="/ui/sign-out" method="post">'
            '<input type="hidden" name="form_token" value="{}"><button class="quiet">Sign out</button></form>',
            encode_pairs(("id", part) for part in page.below),
            visible(page.below[-1]) if page.below else "the root",
            page.search_text,
            f"Search in {visible(shortened(page.below[-1], 20))}" if page.below else "Search all names",
            form_token,
        )
    return html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        'content="light dark"><title>{title} - Lance explorer</title><link rel="stylesheet" href="{style}">'
        '<link rel="icon" href="data:,"><script src="{script}" defer></script></head>'
        '<body><a class="skip" href="#main">Skip to the content</a>'
        '<header><a class="brand" href="/ui">Lance explorer</a>{tools}</header>'
        '<main id="main" tabindex="-1">{body}</main></body></html>',
        title=visible(page.title),
        style=assets.address("style.css"),
        script=assets.address("script.js"),
        tools=tools,
        body=page.body,
    )


def sign_in_page(form_token: str, next: str, *, status: int = 401, message: str | None = None) -> Page:
    """Returns the form that asks for the gateway's token.

    Args:
        form_token: The token of the form.
        next: The path to show after the sign-in.
        status: The HTTP status.
        message: Why an attempt failed.
    """
    described = Markup(' aria-invalid="true" aria-describedby="problem"') if message else None
    body = html(
        '<section class="card sign-in"><h1>Sign in</h1>{}<form action="/ui/sign-in" method="post">'
        '<input type="hidden" name="form_token" value="{}"><input type="hidden" name="next" value="{}">'
        '<label for="token">Token of the gateway</label><input id="token" type="password" name="token" required '
        'autofocus autocomplete="current-password"{}><button>Sign in</button></form>'
        '<p class="note"><code>lance-ns serve</code> prints the token, unless it was set by '
        "<code>--token-file</code> or <code>LANCE_NS_TOKEN</code>.</p></section>",
        html('<p class="error" role="alert" id="problem">{}</p>', message) if message else None,
        form_token,
        next,
        described,
    )
    return Page("Sign in", body, status)


def continue_page(path: str) -> Page:
    """Returns a page with a link to a path of the explorer."""
    return Page("Continue", html('<h1>Continue</h1><p><a href="{}">Continue to the page</a></p>', path))


def error_page(status: int, title: str, message: str, below: Sequence[str] = ()) -> Page:
    """Returns a page that consists of an error."""
    body = html('<h1>{}</h1><p class="error" role="alert">{}</p>', title, visible(message))
    return Page(title, html('{}<p><a href="/ui">All namespaces</a></p>', body), status, below)


async def namespace_page(reader: CatalogReader, id: Sequence[str], tokens: Mapping[str, str]) -> Page:
    """Returns the page of a namespace: its child namespaces and its tables, 100 of each.

    Args:
        reader: Reads the catalog.
        id: The namespace; empty for the root.
        tokens: The page token of `namespaces` or `tables`; with one of them, the page contains that list only.
    """
    lists = [kind for kind in ("namespaces", "tables") if not tokens or kind in tokens]
    parts = [show(_list(reader, kind, id, tokens.get(kind))) for kind in lists]
    if id and not tokens:
        parts.append(show(_namespace_properties(reader, id)))
    sections = await asyncio.gather(*parts)
    titled = [*(kind.capitalize() for kind in lists), "Properties"]
    body = html(
        "{}<h1>{}</h1>{}",
        _breadcrumbs(id[:-1], id[-1]) if id else None,
        name(id[-1]) if id else "All namespaces",
        [_section(title, content) for title, content in zip(titled, sections, strict=False) if content]
        or _note("This namespace is empty." if id else "The catalog is empty."),
    )
    return Page(id[-1] if id else "All namespaces", body, below=id)


async def search_page(reader: CatalogReader, id: Sequence[str], text: str) -> Page:
    """Returns the namespaces and tables below a namespace whose names contain a text."""
    result = await search(reader, id, text)
    items = [
        html(
            '<li class="{}"><a href="{}">{}</a></li>',
            match.kind,
            link(match.kind, match),
            _joined(match),
        )
        for match in result.matches
    ]
    notes = [f"{values.number(len(items))} found" if items else "No name contains this text"]
    if result.is_full:
        notes.append(f"the search stopped after {MAX_MATCHES} results; use a longer text")
    if result.timed_out:
        notes.append("the search stopped at its time limit, so there may be more; open a namespace to search below it")
    if result.errors:
        notes.append(f"{values.number(len(result.errors))} listings failed, the first with")
    body = html(
        '{}<h1>Search</h1><p role="status">Names that contain <q>{}</q>, below {}: {}.</p>{}'
        '<ul class="names results">{}</ul>',
        _breadcrumbs(id),
        name(text),
        name(id[-1]) if id else "the root",
        "; ".join(notes),
        show_error(result.errors[0]) if result.errors else None,
        items,
    )
    return Page("Search", body, below=id, search_text=text)


async def table_page(reader: CatalogReader, id: TableId, address: str) -> Page:
    """Returns the page of a table; its sections are read concurrently, and each shows its own error.

    Args:
        reader: Reads the catalog.
        id: The table.
        address: The address of the gateway, for snippets.

    Raises:
        TableNotFoundError: The table does not exist.
    """
    description, rows, *sections = await asyncio.gather(
        _outcome(reader.read("describe_table", id=list(id), vend_credentials=False)),
        show(_rows(reader, id)),
        *(show(read(reader, id)) for read in _SECTIONS.values()),
    )
    if isinstance(description, TableNotFoundError):
        raise description
    contents = {
        "Overview": _overview(id, description, rows),
        "Open this table": _snippets(id, address),
        **dict(zip(_SECTIONS, sections, strict=True)),
        "Properties": _table_properties(description),
    }
    body = html(
        '{}<h1>{}</h1><nav class="contents" aria-label="Sections">{}</nav>{}',
        _breadcrumbs(id.parent, id.name),
        name(id.name),
        [html('<a href="#{}">{}</a>', _key(title), title) for title in contents],
        [_section(title, content) for title, content in contents.items()],
    )
    return Page(id.name, body, below=id.parent)


async def _outcome(work: Awaitable[Any]) -> Any:
    """Returns the result of `work`, or its error."""
    try:
        return await work
    except Exception as e:
        return e


def _overview(id: TableId, description: Any, rows: Markup) -> Markup:
    facts: list[tuple[str, Markup]] = [("Id", html("<code>{}</code>", name(str(id))))]
    if isinstance(description, BaseException):
        facts.append(("Location", show_error(description)))
    else:
        location = without_user(description.location or "unknown")
        facts.append(("Location", html("<code>{}</code>", visible(location))))
        if description.managed_versioning:
            facts.append(("Versions", Markup("managed by the catalog")))
    facts.append(("Rows", rows))
    return html("<dl>{}</dl>", [html("<div><dt>{}</dt><dd>{}</dd></div>", *fact) for fact in facts])


def _snippets(id: TableId, address: str) -> Markup:
    return html(
        '<div class="snippets">{}</div>',
        [
            html(
                '<details name="snippet"{}><summary>{}</summary><pre data-copy tabindex="0">{}</pre></details>',
                Markup(" open") if i == 0 else None,
                title,
                code,
            )
            for i, (title, code) in enumerate(snippets(id, address).items())
        ],
    )


async def _rows(reader: CatalogReader, id: TableId) -> Markup:
    return html("{}", values.number((await reader.read("count_table_rows", id=list(id))).count))


async def _schema(reader: CatalogReader, id: TableId) -> Markup:
    response = await reader.read("describe_table", id=list(id), load_detailed_metadata=True)
    if response.var_schema is None:
        return html('<p class="note">Nothing was written to the table yet.</p>')
    fields = response.var_schema.fields
    rows = [
        (
            name(field.name),
            html("<code>{}</code>", visible(shortened(values.type_text(field.type), 500))),
            "yes" if field.nullable else "no",
        )
        for field in fields[:_MAX_FIELDS]
    ]
    note = f"The first {len(rows):,} of {len(fields):,} columns." if len(fields) > len(rows) else None
    return html("{}{}", _note(note), _table("Columns and their types", ("Column", "Type", "Can be null"), rows))


async def _sample(reader: CatalogReader, id: TableId) -> Markup:
    response = await reader.read("query_table", id=list(id), k=_SAMPLE_ROWS, vector={})
    data: object = getattr(response, "data", response)
    return await asyncio.to_thread(values.sample_table, data if isinstance(data, bytes) else bytes(response))


async def _versions(reader: CatalogReader, id: TableId) -> Markup:
    response = await reader.read("list_table_versions", id=list(id), limit=_VERSIONS, descending=True)
    versions = response.versions[:_VERSIONS]
    # Few catalogs say it, and reading the transactions of the dataset would take a request for each version.
    operations = any("operation" in (it.metadata or {}) for it in versions)
    rows = []
    for it in versions:
        metadata = it.metadata or {}
        operation = [visible(metadata.get("operation", ""))] if operations else []
        rows.append((it.version, values.time(it.timestamp_millis), _count(metadata.get("total_rows")), *operation))
    note = f"The newest {_VERSIONS} versions." if response.page_token else None
    head = ("Version", "Time", "Rows", *(["Operation"] if operations else []))
    return html("{}{}", _note(note), _table("Versions", head, rows))


async def _tags(reader: CatalogReader, id: TableId) -> Markup:
    response = await reader.read("list_table_tags", id=list(id), limit=_PAGE)
    rows = [(name(tag), it.version, visible(it.branch or "main")) for tag, it in response.tags.items()]
    note = f"The first {_PAGE} tags." if response.page_token else None
    return html("{}{}", _note(note), _table("Tags", ("Tag", "Version", "Branch"), rows))


async def _indices(reader: CatalogReader, id: TableId) -> Markup:
    response = await reader.read("list_table_indices", id=list(id), limit=_PAGE)
    rows = [
        (name(it.index_name), visible(it.index_type or ""), visible(", ".join(it.columns)), _coverage(it))
        for it in response.indexes
    ]
    note = f"The first {_PAGE} indices." if response.page_token else None
    return html("{}{}", _note(note), _table("Indices", ("Index", "Type", "Columns", "Covered rows"), rows))


async def _statistics(reader: CatalogReader, id: TableId) -> Markup:
    stats = await reader.read("get_table_stats", id=list(id))
    fragments, lengths = stats.fragment_stats, stats.fragment_stats.lengths
    rows = [
        ("Size", values.size(stats.total_bytes)),
        ("Rows", values.number(stats.num_rows)),
        ("Indices", values.number(stats.num_indices)),
        ("Fragments", values.number(fragments.num_fragments)),
        ("Small fragments", values.number(fragments.num_small_fragments)),
        ("Rows of a fragment", f"{lengths.min:,} to {lengths.max:,}, median {lengths.p50:,}"),
    ]
    return html("<dl>{}</dl>", [html("<div><dt>{}</dt><dd>{}</dd></div>", *row) for row in rows])


_SECTIONS = {
    "Columns": _schema,
    "Sample rows": _sample,
    "Versions": _versions,
    "Tags": _tags,
    "Indices": _indices,
    "Statistics": _statistics,
}
"""The sections of a table's page that are read on their own."""


async def _list(reader: CatalogReader, kind: str, id: Sequence[str], token: str | None) -> Markup:
    """Returns one page of child namespaces or tables, with links to the first and the next page."""
    response = await reader.read(f"list_{kind}", id=list(id), limit=_PAGE, page_token=token or None)
    page = kind.removesuffix("s")
    names: Iterable[str] = getattr(response, kind)
    items = [html('<li class="{}"><a href="{}">{}</a></li>', page, link(page, [*id, it]), name(it)) for it in names]
    links = []
    if token:
        links.append(html('<a href="{}">First page</a>', link("namespace", id)))
    if response.page_token:
        links.append(
            html('<a rel="next" href="{}">Next page</a>', link("namespace", id, **{kind: response.page_token}))
        )
    return html(
        "{}{}",
        html('<ul class="names {}">{}</ul>', kind, items) if items else None,
        html('<nav class="pages" aria-label="Pages of {}">{}</nav>', kind, links) if links else None,
    )


async def _namespace_properties(reader: CatalogReader, id: Sequence[str]) -> Markup:
    response = await reader.read("describe_namespace", id=list(id))
    return _properties(response.properties) if response.properties else Markup()


def _table_properties(description: Any) -> Markup:
    if isinstance(description, BaseException):
        return show_error(description)
    return _properties(description.properties or {})


def _properties(properties: Mapping[str, str]) -> Markup:
    rows = [(name(key), visible(shortened(value, _MAX_PROPERTY))) for key, value in mask(properties).items()]
    return _table("Properties", ("Property", "Value"), rows)


def _coverage(index: Any) -> Markup:
    covered, missed = index.num_indexed_rows, index.num_unindexed_rows
    if covered is None or missed is None:
        return html("{}", values.number(covered))
    total = covered + missed
    return html(
        '{} of {} <meter min="0" max="{}" value="{}" aria-label="Share of covered rows"></meter>',
        values.number(covered),
        values.number(total),
        total or 1,
        covered if total else 1,
    )


def _count(text: str | None) -> str:
    return values.number(int(text)) if text is not None and text.isdecimal() else "\N{EN DASH}"


def _note(text: str | None) -> Markup | None:
    return None if text is None else html('<p class="note">{}</p>', text)


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Returns a table whose first column contains the headings of the rows."""
    body = [
        html('<tr><th scope="row">{}</th>{}</tr>', first, [html("<td>{}</td>", it) for it in rest])
        for first, *rest in rows
    ]
    if not body:
        return html('<p class="note">None.</p>')
    return html(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table><caption class="hidden">{}</caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>",
        caption,
        caption,
        [html('<th scope="col">{}</th>', it) for it in head],
        body,
    )


def _key(title: str) -> str:
    return title.lower().replace(" ", "-")


def _section(title: str, content: Markup) -> Markup:
    key = _key(title)
    return html('<section class="card" aria-labelledby="{}"><h2 id="{}">{}</h2>{}</section>', key, key, title, content)


def _breadcrumbs(id: Sequence[str], current: str | None = None) -> Markup:
    """Returns links to a namespace and all above it, followed by the name of the page itself."""
    items = [html('<li><a href="/ui">All namespaces</a></li>')]
    items += [
        html('<li><a href="{}">{}</a></li>', link("namespace", id[: i + 1]), name(part)) for i, part in enumerate(id)
    ]
    if current is not None:
        items.append(html('<li aria-current="page">{}</li>', name(current)))
    return html('<nav class="trail" aria-label="Path"><ol>{}</ol></nav>', items)


def _joined(id: Sequence[str]) -> Markup:
    return Markup('<span class="joint"> / </span>'.join(name(part) for part in id))
