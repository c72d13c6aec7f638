"""Search for namespaces and tables by a part of their name, with limits of time and results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.calls.tasks import each
from lance_ns_async.gateway.explorer.reading import CatalogReader
from lance_ns_async.model import Id, NamespaceId, TableId

MAX_MATCHES = 100

_SECONDS = 5.0
_PAGE = 1_000
_MAX_IN_FLIGHT = 8


@dataclass(slots=True)
class NameSearch:
    """The progress and the result of a search."""

    matches: list[Id] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    """The errors of listings that failed."""
    timed_out: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the search ended because of the number of matches."""
        return len(self.matches) >= MAX_MATCHES


async def search(reader: CatalogReader, start: Sequence[str], text: str, seconds: float = _SECONDS) -> NameSearch:
    """Searches below a namespace, one level after the other; upper and lower case are equal.

    Args:
        reader: Reads the catalog.
        start: The namespace.
        text: A part of the name of a namespace or table.
        seconds: Time limit; what was found until then is the result.
    """
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
        page = await reader.read(operation, id=list(at), limit=_PAGE, page_token=token)
        for name in page.tables if operation == "list_tables" else page.namespaces:
            yield name
        if not (token := page.page_token):
            return
