"""Many tables of a Glue database described by patterns of their names, for Glue has no call that takes a list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from lance_ns_async.backends.glue.wire import Listed, expressions
from lance_ns_async.calls.concurrency import each
from lance_ns_async.calls.paging import walk
from lance_ns_async.model import NamespaceId, Page, Table, TableId

_SIDE_BY_SIDE = 8
"""Patterns of one batch that are asked for at once."""

_STRANGERS = 100
"""Tables that a pattern does not mean in the answers to it, from which on the server is taken to ignore patterns."""

Fetch = Callable[[Mapping[str, Any], NamespaceId, str | None], Awaitable[Page[Listed]]]
"""Gives the page of a database's tables at a token; the mapping says which tables."""


class Patterns:
    """Asks for tables by patterns, believes no answer further than it fits, and notices who ignores them."""

    def __init__(self, fetch: Fetch, give_up: Callable[[], None]) -> None:
        """`give_up` is called when patterns turn out to be of no use with this server."""
        self._fetch = fetch
        self._told = give_up
        self._useless = False
        self._overlooked: set[TableId] = set()

    async def describe(
        self, within: Mapping[str, Any], parent: NamespaceId, names: Sequence[str]
    ) -> Mapping[str, Table]:
        """Those of the tables that were found and are of Lance, by the names as given."""
        wanted = dict.fromkeys(name.lower() for name in names)
        seen: set[str] = set()
        found: dict[str, Table] = {}

        async def look(part: tuple[str, Sequence[str]]) -> None:
            expression, asked = part
            strangers = 0
            if self._useless:
                return
            fetch = partial(self._fetch, {**within, "Expression": expression}, parent)
            async with aclosing(walk(fetch)) as pages:
                async for _, page in pages:
                    listed = {entry.name.lower(): entry.table for entry in page.items}
                    strangers += len(listed.keys() - set(asked))
                    seen.update(listed.keys() & wanted.keys())
                    found.update({name: table for name, table in listed.items() if table and name in wanted})
                    if strangers > _STRANGERS:
                        self._give_up()
                        return

        await each(look, expressions(wanted), max_in_flight=_SIDE_BY_SIDE)
        if not seen and not self._useless:
            self._overlooked.update(map(parent.table, names))
        told = ((name, found.get(name.lower())) for name in names)
        return {name: replace(table, id=parent.table(name)) for name, table in told if table is not None}

    def asked_singly(self, id: TableId) -> Callable[[], None]:
        """What to call if `id`, asked for by its own name, is found.

        Where patterns found none of the names they were for, and then one of those is there, they found nothing
        because the server does not understand them.
        """
        if id not in self._overlooked:
            return _nothing
        self._overlooked.discard(id)
        return self._give_up

    def _give_up(self) -> None:
        self._useless = True
        self._overlooked.clear()
        self._told()


def _nothing() -> None:
    """There is nothing to conclude."""
