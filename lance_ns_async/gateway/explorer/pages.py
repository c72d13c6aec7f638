"""The pages of namespaces and of search results, and the search by a part of a name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async.calls.tasks import each
from lance_ns_async.gateway.explorer import layout
from lance_ns_async.gateway.explorer.layout import Markup, Page, html, link, name, visible
from lance_ns_async.gateway.responses import RequestError, log_unexpected
from lance_ns_async.model import Id, NamespaceId, TableId
from lance_ns_async.spec.routes import BY_OPERATION

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)

READ_SECONDS = 15  # Maximum seconds of one read: a page must not wait for a part that hangs.
_PAGE = 100  # Maximum number of names in a list.
MAX_MATCHES = 100

_SECONDS = 5.0
_LISTED = 1_000
_MAX_IN_FLIGHT = 8


class CatalogReader:
    """The reading operations of a namespace: an AsyncNamespace, or an object with methods of the same names."""

    def __init__(self, namespace: object) -> None:
        self._namespace = namespace

    async def read(self, operation: str, **fields: Any) -> Any:
        """Returns the response of an operation of the spec, whose request has these fields."""
        method = getattr(self._namespace, operation, None)
        if method is None:
            raise UnsupportedOperationError(f"Not supported: {operation} (the catalog does not have this operation)")
        async with asyncio.timeout(READ_SECONDS):
            return await method(BY_OPERATION[operation].request(**fields))


async def outcome(work: Awaitable[T]) -> T | BaseException:
    """Returns the result of `work`, or its error; raises only what ends tasks or the process."""
    try:
        return await work
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # a part of a page shows it; includes panics of Rust
        return e


async def show(work: Awaitable[Markup]) -> Markup:
    """Returns the result of `work`, or its error as a part of a page; raises as `outcome`."""
    result = await outcome(work)
    return show_error(result) if isinstance(result, BaseException) else result


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns the results of concurrent work that raises no errors."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(it) for it in work]
    return [task.result() for task in tasks]


def show_error(error: BaseException) -> Markup:
    """Returns an error as a part of a page; unexpected errors go to the log, and the page contains only their id."""
    match error:
        case UnsupportedOperationError() | TableNotFoundError():
            # Nothing was written to a table that is only declared.
            return html('<p class="note">{}</p>', visible(str(error)))
        case LanceNamespaceError() | RequestError():
            message = str(error)
        case TimeoutError():
            message = f"Service unavailable: no response within {READ_SECONDS} s; reload the page to try again"
        case _:
            message = f"Internal error: the gateway's log has the details under {log_unexpected(error, log)}"
    return html('<p class="error" role="alert">{}</p>', visible(message))


async def namespace_page(reader: CatalogReader, id: Sequence[str], tokens: Mapping[str, str]) -> Page:
    """Returns the page of a namespace, 100 children and tables; with a page token for one list, that list only."""
    lists = [kind for kind in ("namespaces", "tables") if not tokens or kind in tokens]
    parts = [show(_list(reader, kind, id, tokens.get(kind))) for kind in lists]
    if id and not tokens:
        parts.append(show(_namespace_properties(reader, id)))
    sections = await run_all(parts)
    titled = [*(kind.capitalize() for kind in lists), "Properties"]
    body = html(
        "{}<h1>{}</h1>{}",
        layout.breadcrumbs(id[:-1], id[-1]) if id else None,
        name(id[-1]) if id else "All namespaces",
        [layout.section(title, content) for title, content in zip(titled, sections, strict=False) if content]
        or layout.note("This namespace is empty." if id else "The catalog is empty."),
    )
    return Page(id[-1] if id else "All namespaces", body, below=id)


async def search_page(reader: CatalogReader, id: Sequence[str], text: str) -> Page:
    """Returns the namespaces and tables below a namespace whose names contain a text."""
    result = await search(reader, id, text)
    items = [
        html('<li class="{}"><a href="{}">{}</a></li>', match.kind, link(match.kind, match), _joined(match))
        for match in result.matches
    ]
    notes = [f"{len(items):,} found" if items else "No name contains this text"]
    if result.is_full:
        notes.append(f"the search stopped after {MAX_MATCHES} results; use a longer text")
    if result.timed_out:
        notes.append("the search stopped at its time limit, so there may be more; open a namespace to search below it")
    if result.errors:
        notes.append(f"{len(result.errors):,} listings failed, the first with")
    body = html(
        '{}<h1>Search</h1><p role="status">Names that contain <q>{}</q>, below {}: {}.</p>{}'
        '<ul class="names results">{}</ul>',
        layout.breadcrumbs(id),
        name(text),
        name(id[-1]) if id else "the root",
        "; ".join(notes),
        show_error(result.errors[0]) if result.errors else None,
        items,
    )
    return Page("Search", body, below=id, search_text=text)


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
    return layout.properties(response.properties) if response.properties else Markup()


def _joined(id: Sequence[str]) -> Markup:
    return Markup('<span class="joint"> / </span>'.join(name(part) for part in id))


@dataclass(slots=True)
class NameSearch:
    """The progress and the result of a search."""

    matches: list[Id] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)  # The errors of listings that failed.
    timed_out: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the search ended because of the number of matches."""
        return len(self.matches) >= MAX_MATCHES


async def search(reader: CatalogReader, start: Sequence[str], text: str, seconds: float = _SECONDS) -> NameSearch:
    """Searches below a namespace, level by level and without case; at the time limit, returns what it has."""
    result = NameSearch()
    part = text.casefold()
    level = [NamespaceId(start)]

    def add(id: Id) -> None:
        if part in id[-1].casefold() and not result.is_full:
            result.matches.append(id)

    async def visit(at: NamespaceId) -> None:
        try:
            async for name in _names(reader, "list_tables", at):
                add(TableId((*at, name)))
                if result.is_full:
                    return
            async for name in _names(reader, "list_namespaces", at):
                add(child := at.child(name))
                below.append(child)
                if result.is_full:
                    return
        except (LanceNamespaceError, TimeoutError) as e:
            result.errors.append(e)

    try:
        async with asyncio.timeout(seconds):
            while level and not result.is_full:
                below: list[NamespaceId] = []
                await each(visit, level, max_in_flight=_MAX_IN_FLIGHT)
                level = below
    except TimeoutError:
        result.timed_out = True
    return result


async def _names(reader: CatalogReader, operation: str, at: Sequence[str]) -> AsyncIterator[str]:
    token: str | None = None
    while True:
        page = await reader.read(operation, id=list(at), limit=_LISTED, page_token=token)
        for below in page.tables if operation == "list_tables" else page.namespaces:
            yield below
        if not (token := page.page_token):
            return
