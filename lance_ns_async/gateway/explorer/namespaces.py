"""The pages of namespaces and of search results, and the search by a part of a name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError, PermissionDeniedError

from lance_ns_async.calls.tasks import each
from lance_ns_async.gateway.explorer.layout import FailedPart, Page, link, shown_properties
from lance_ns_async.gateway.explorer.reading import CatalogReader, failure, outcome, run_all
from lance_ns_async.model import DELIMITER, Id, NamespaceId, TableId
from lance_ns_async.storage.datasets import Totals

_PAGE = 100  # Maximum number of names in a list.
MAX_MATCHES = 100
_MAX_BACK = 20  # Maximum number of pages to go back one by one: an address has their tokens.

_SECONDS = 5.0
_LISTED = 1_000
_MAX_IN_FLIGHT = 8
_FACT_SECONDS = 2.0  # Maximum seconds of the reads of tables for a list.


@dataclass(slots=True)
class NameList:
    """A page of child namespaces or of tables."""

    names: Sequence[str]
    token: str | None
    next: str | None  # The address of the next page.
    previous: str | None  # The address of the page before; None on the first and the second page.
    facts: dict[str, Totals] = field(default_factory=dict)

    @property
    def unread(self) -> int:
        """The number of tables whose facts were not read in time, or cannot be read."""
        return len(self.names) - len(self.facts)


async def namespace_page(reader: CatalogReader, id: NamespaceId, tokens: Mapping[str, Sequence[str]]) -> Page:
    """Returns the page of a namespace, 100 children and tables; with page tokens of one list, that list only.

    Cost: two listings, and opens of tables for at most two seconds.
    """
    kinds = [kind for kind in ("namespaces", "tables") if not tokens or kind in tokens]
    parts: list[Any] = [outcome(_list(reader, kind, id, tokens.get(kind, ()))) for kind in kinds]
    if id and not tokens:
        parts.append(outcome(_properties(reader, id)))
    results = await run_all(parts)
    errors = [it.error for it in results if isinstance(it, FailedPart)]
    if len(errors) == len(results) and isinstance(errors[0], NamespaceNotFoundError | PermissionDeniedError):
        raise errors[0]
    values = {
        "id": id,
        "lists": dict(zip(kinds, results, strict=False)),
        "properties": results[len(kinds)] if len(results) > len(kinds) else None,
        "seconds": _FACT_SECONDS,
    }
    return Page(id[-1] if id else "All namespaces", "namespace.html", values, below=id)


async def _list(reader: CatalogReader, kind: str, id: NamespaceId, tokens: Sequence[str]) -> NameList:
    """Returns one page of a list; `tokens` are those of the pages up to this one, for links backwards."""
    token = tokens[-1] if tokens else None
    response = await reader.read(f"list_{kind}", id=list(id), limit=_PAGE, page_token=token or None)
    tokens = [*tokens[-_MAX_BACK:]]
    following = link("namespace", id, **{kind: [*tokens, response.page_token]}) if response.page_token else None
    previous = link("namespace", id, **{kind: tokens[:-1]}) if len(tokens) > 1 else None
    page = NameList(getattr(response, kind), token, following, previous)
    if kind == "tables":
        await _read_facts(reader, id, page)
    return page


async def _read_facts(reader: CatalogReader, id: NamespaceId, page: NameList) -> None:
    """Reads the facts of tables until the time is over."""

    async def read(name: str) -> None:
        facts = await outcome(reader.read_dataset(id.table(name), Totals.read))
        if not isinstance(facts, FailedPart):
            page.facts[name] = facts

    try:
        async with asyncio.timeout(_FACT_SECONDS):
            await each(read, page.names, max_in_flight=_MAX_IN_FLIGHT)
    except TimeoutError:
        return


async def _properties(reader: CatalogReader, id: Sequence[str]) -> Mapping[str, str]:
    response = await reader.read("describe_namespace", id=list(id))
    return shown_properties(response.properties)


async def search_page(reader: CatalogReader, id: Sequence[str], text: str) -> Page:
    """Returns the namespaces and tables below a namespace whose names contain a text."""
    result = await search(reader, id, text)
    notes = [f"{len(result.matches):,} found" if result.matches else "No name contains this text"]
    if result.is_full:
        notes.append(f"the search stopped after {MAX_MATCHES} results; use a longer text")
    if result.timed_out:
        notes.append("the search stopped at its time limit, so there may be more; open a namespace to search below it")
    if result.errors:
        notes.append(f"{len(result.errors):,} listings failed, the first with")
    values = {
        "id": id,
        "text": text,
        "notes": notes,
        "error": failure(result.errors[0]) if result.errors else None,
        "matches": [("table" if isinstance(it, TableId) else "namespace", it) for it in result.matches],
    }
    return Page("Search", "search.html", values, below=id, search_text=text)


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
    separator = next((it for it in (DELIMITER, ".") if it in part), None)
    level = [NamespaceId(start)]

    def add(id: Id) -> None:
        # A text with separators may be that of an id.
        names = [id[-1], *([separator.join(id)] if separator else [])]
        if any(part in it.casefold() for it in names) and not result.is_full:
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
