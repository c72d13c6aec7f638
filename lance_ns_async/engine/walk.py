"""Walks of a namespace's subtree: in rounds of concurrent pages, or in a fixed order that can be resumed."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Literal

from lance_namespace.errors import NamespaceNotFoundError, UnsupportedOperationError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.paging import Progress, check_limit, decode_token, encode_token, foreign_token, keep_all, take
from lance_ns_async.calls.tasks import each, in_slices
from lance_ns_async.engine.list import Lister
from lance_ns_async.model import DELIMITER, NamespaceId, Page, TableId

ListingKind = Literal["tables", "namespaces"]


@dataclass(frozen=True, slots=True)
class _Visit:
    """A listing that has further pages."""

    at: NamespaceId
    kind: ListingKind
    progress: Progress
    token: str | None = None


KeepIn = Callable[[NamespaceId, Sequence[str]], Awaitable[Sequence[str]]]
"""Returns the names in a namespace that belong in the result, in the same order."""


class Tree:
    """The subtree below one namespace."""

    def __init__(self, backend: Backend, start: NamespaceId, *, max_in_flight: int) -> None:
        self._backend = backend
        self._start = start
        self._max_in_flight = max_in_flight
        self._lister = Lister(backend, max_in_flight=max_in_flight)

    async def tables(self, *, recursive: bool) -> AsyncGenerator[Sequence[TableId], None]:
        """Yields the tables in groups, with no order between namespaces; holds at most one round of pages in memory."""
        first = [*self._visits(self._start, "tables")]
        if recursive:
            first += self._visits(self._start, "namespaces")
        if not first and self._start:
            # There is nothing to list, but the namespace must exist.
            await self._backend.describe_namespace(self._start)
        async with aclosing(self._rounds(first, with_tables=True, recursive=recursive)) as rounds:
            async for listings in rounds:
                ids: list[TableId] = []
                for parent, kind, names in listings:
                    if kind == "tables":
                        ids += await in_slices(parent.table, names)
                yield ids

    async def namespaces(self, *, recursive: bool) -> AsyncGenerator[Sequence[NamespaceId], None]:
        """Yields the namespaces, parents before children; holds at most one round of pages in memory."""
        first = [*self._visits(self._start, "namespaces")]
        if not first and self._start:
            await self._backend.describe_namespace(self._start)
        async with aclosing(self._rounds(first, with_tables=False, recursive=recursive)) as rounds:
            async for listings in rounds:
                yield [parent.child(name) for parent, _, names in listings for name in names]

    async def page(self, limit: int | None, page_token: str | None, keep: KeepIn | None = None) -> Page[TableId]:
        """Returns at most `limit` tables of the subtree, depth first and sorted.

        Args:
            limit: Maximum number of tables; None for all.
            page_token: Where to start; None for the beginning.
            keep: Selects the names in a namespace; None selects Lance tables.
        """
        check_limit(limit)
        if not self._start and keep is None and not isinstance(decode_token(page_token), dict):
            try:
                page = await take(self._backend.list_all_tables, keep_all, limit=limit, page_token=page_token)
            except UnsupportedOperationError:
                if page_token:
                    raise foreign_token(page_token) from None
            else:
                ids = [TableId(name.split(DELIMITER)) for name in page.items]
                return Page(sorted(ids, key=lambda id: [*((1, name) for name in id.parent), (0, id.name)]), page.token)
        keep = keep or self._lister.keep
        after = self._after(page_token)
        ids = []
        async with aclosing(self._depth_first(self._start, after)) as listings:
            async for parent, all_names in listings:
                names = all_names
                while names:
                    count = len(names) if limit is None else limit - len(ids)
                    candidates, names = names[:count], names[count:]
                    ids += await in_slices(parent.table, await keep(parent, candidates))
                    if len(ids) == limit:
                        return Page(ids, encode_token({"after": parent.table(candidates[-1])}))
        return Page(ids)

    def _after(self, page_token: str | None) -> tuple[str, ...]:
        """Returns the names from the start to the last returned table; an empty tuple at the beginning."""
        match decode_token(page_token):
            case None:
                return ()
            case {"after": [*names]} if len(names) > len(self._start) and all(isinstance(n, str) for n in names):
                if tuple(names[: len(self._start)]) == self._start:
                    return tuple(names[len(self._start) :])
        raise foreign_token(page_token)

    async def _rounds(
        self, first: list[_Visit], *, with_tables: bool, recursive: bool
    ) -> AsyncGenerator[list[tuple[NamespaceId, ListingKind, Sequence[str]]], None]:
        # No task group is open during a yield: a consumer may stop at any time, in any task.
        waiting = deque(first)
        while waiting:
            visits = [waiting.popleft() for _ in range(min(len(waiting), self._max_in_flight))]
            pages = await self._fetch(visits)
            listings = []
            for visit, page in zip(visits, pages, strict=True):
                listings.append((visit.at, visit.kind, page.items))
                visit.progress.record(page)
                if page.token is not None:
                    waiting.append(replace(visit, token=page.token))
                if visit.kind == "namespaces" and recursive:
                    for name in page.items:
                        waiting.extend(self._visits(visit.at.child(name), "namespaces"))
                        if with_tables:
                            waiting.extend(self._visits(visit.at.child(name), "tables"))
            yield listings

    async def _fetch(self, visits: Sequence[_Visit]) -> Sequence[Page[str]]:
        pages: list[Page[str]] = [Page([])] * len(visits)

        async def fetch(i: int) -> None:
            try:
                pages[i] = await self._page(visits[i])
            except NamespaceNotFoundError:
                # A namespace dropped during the walk is no longer part of the tree; only the start must exist.
                if visits[i].at == self._start:
                    raise

        await each(fetch, range(len(visits)), max_in_flight=self._max_in_flight)
        return pages

    async def _page(self, visit: _Visit) -> Page[str]:
        if visit.kind == "namespaces":
            return await self._backend.list_namespaces(visit.at, visit.token, None)
        page = await self._backend.list_tables(visit.at, visit.token, None)
        return Page(await self._lister.keep(visit.at, page.items), page.token)

    def _visits(self, at: NamespaceId, kind: ListingKind) -> list[_Visit]:
        can = self._backend.capabilities
        if kind == "tables":
            return [_Visit(at, kind, Progress(at))] if len(at) >= can.min_depth else []
        return [_Visit(at, kind, Progress(at))] if can.max_depth is None or len(at) < can.max_depth else []

    async def _depth_first(
        self, at: NamespaceId, after: tuple[str, ...]
    ) -> AsyncGenerator[tuple[NamespaceId, Sequence[str]], None]:
        """Yields each namespace with its candidate names that come after `after`, which is relative to `at`."""
        if len(after) < 2 and self._visits(at, "tables"):
            names = await self._all(at, "tables")
            yield at, [name for name in names if not after or name > after[0]]
        if not self._visits(at, "namespaces"):
            return
        inside = after[0] if len(after) > 1 else ""
        for child in await self._all(at, "namespaces"):
            if child >= inside:
                below = self._depth_first(at.child(child), after[1:] if child == inside else ())
                async with aclosing(below) as listings:
                    async for listing in listings:
                        yield listing

    async def _all(self, at: NamespaceId, kind: ListingKind) -> Sequence[str]:
        listing = self._backend.list_tables if kind == "tables" else self._backend.list_namespaces

        async def fetch(token: str | None, size: int | None) -> Page[str]:
            return await listing(at, token, size)

        try:
            page = await take(fetch, keep_all, limit=None, page_token=None)
        except NamespaceNotFoundError:
            # Dropped during the walk, as in `_fetch`.
            if at == self._start:
                raise
            return []
        return sorted(page.items)
