"""Descriptions of many tables of a Glue database by name patterns, because no Glue call accepts a list of names."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from lance_ns_async.backends.base import ObservedServer
from lance_ns_async.backends.glue.wire import ListedTable
from lance_ns_async.calls.paging import walk
from lance_ns_async.calls.tasks import each
from lance_ns_async.model import NamespaceId, Page, Table, TableId

_MAX_EXPRESSION_LENGTH = 2048  # Maximum length of a name pattern, in characters.

_PLAIN = re.compile(r"[\w -]+")
"""Names that match the same in every pattern dialect, including servers that use shell patterns."""

_SIDE_BY_SIDE = 8  # Maximum number of concurrent pattern requests for one batch.

_MAX_EXTRA = 100
"""Maximum number of tables in a response that do not match its pattern; more mean that the server ignores patterns."""

Fetch = Callable[[Mapping[str, Any], NamespaceId, str | None], Awaitable[Page[ListedTable]]]
"""Function that returns the page of a database's tables at a token; the mapping contains the request arguments."""


class Patterns:
    """Requests tables by name patterns, filters the results, and detects servers that ignore patterns."""

    def __init__(self, fetch: Fetch, server: ObservedServer) -> None:
        """Creates the object.

        Args:
            server: Learns that it ignores patterns.
        """
        self._fetch = fetch
        self._server = server
        self._missed_ids: set[TableId] = set()

    async def describe(
        self, within: Mapping[str, Any], parent: NamespaceId, names: Sequence[str]
    ) -> Mapping[str, Table]:
        """Returns the Lance tables that were found, keyed by the requested names."""
        lower_names = dict.fromkeys(name.lower() for name in names)
        matches: set[str] = set()
        tables: dict[str, Table] = {}

        async def look(part: tuple[str, Sequence[str]]) -> None:
            expression, part_names = part
            extra = 0
            if self._server.traits.batches is False:
                return
            fetch = partial(self._fetch, {**within, "Expression": expression}, parent)
            async with aclosing(walk(fetch)) as pages:
                async for _, page in pages:
                    entries = {entry.name.lower(): entry.table for entry in page.items}
                    extra += len(entries.keys() - set(part_names))
                    matches.update(entries.keys() & lower_names.keys())
                    tables.update({name: table for name, table in entries.items() if table and name in lower_names})
                    if extra > _MAX_EXTRA:
                        self._give_up()
                        return

        await each(look, expressions(lower_names), max_in_flight=_SIDE_BY_SIDE)
        if not matches and self._server.traits.batches is not False:
            self._missed_ids.update(map(parent.table, names))
        results = ((name, tables.get(name.lower())) for name in names)
        return {name: replace(table, id=parent.table(name)) for name, table in results if table is not None}

    def watch(self, id: TableId) -> Callable[[], None]:
        """Returns the function to call if a describe of this single name finds the table.

        If patterns found none of their names and one of those tables exists, the server does not support patterns.
        """
        if id not in self._missed_ids:
            return _nothing
        self._missed_ids.discard(id)
        return self._give_up

    def _give_up(self) -> None:
        self._server.learn(batches=False)
        self._missed_ids.clear()


def expressions(names: Iterable[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields patterns that together match the names, each with the names that it matches.

    Names that servers could interpret differently in a pattern are omitted.

    Args:
        names: The names, in lower case.
    """
    length, part = 0, list[str]()
    for name in names:
        pattern = re.escape(name)
        if not _PLAIN.fullmatch(name) or len(pattern) > _MAX_EXPRESSION_LENGTH:
            continue
        if part and length + len(pattern) + 1 > _MAX_EXPRESSION_LENGTH:
            yield "|".join(map(re.escape, part)), part
            length, part = 0, []
        length += len(pattern) + bool(part)
        part.append(name)
    if part:
        yield "|".join(map(re.escape, part)), part


def _nothing() -> None:
    """Does nothing."""
