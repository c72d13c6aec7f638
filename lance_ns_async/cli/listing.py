"""Output of the command `ls`: ids as the catalog returns them, optionally with locations."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from lance_ns_async.cli.errors import say
from lance_ns_async.cli.output import Row
from lance_ns_async.model import NamespaceId

if TYPE_CHECKING:
    from lance_ns_async import Namespace, TableId

_GROUP = 5_000
"""Number of tables that are located together: enough for concurrency, but few enough for early output."""


class Listing:
    """The rows of one `ls`; after they are read, `failed` is the number of tables that could not be located."""

    columns: Sequence[str]

    def __init__(self, namespace: Namespace, start: str, *, recursive: bool, namespaces: bool, long: bool) -> None:
        self._namespace = namespace
        self._start = NamespaceId.parse(start)
        self._recursive = recursive
        self._namespaces = namespaces
        self._long = long and not namespaces
        self.columns = ("id", "location") if self._long else ("id",)
        self.failed = 0

    def rows(self) -> Generator[Row, None, None]:
        """Yields a row for each namespace or table, as soon as it is known."""
        if self._namespaces:
            for namespace in self._namespace.iter_namespaces(self._start, recursive=self._recursive):
                yield {"id": str(namespace)}
            return
        tables = self._namespace.iter_tables(self._start, recursive=self._recursive)
        if self._long:
            yield from self._located(tables)
            return
        for table in tables:
            yield {"id": str(table)}

    def holds_namespaces(self) -> bool:
        """Returns whether the listed namespace has child namespaces.

        Raises:
            LanceNamespaceError: The catalog does not respond, or has no such namespace.

        Cost: one call.
        """
        from lance_namespace import ListNamespacesRequest

        page = self._namespace.list_namespaces(ListNamespacesRequest(id=list(self._start), limit=1))
        return bool(page.namespaces)

    def _located(self, tables: Iterable[TableId]) -> Iterator[Row]:
        waiting = iter(tables)
        while group := list(islice(waiting, _GROUP)):
            found = self._namespace.describe_tables(group)
            for id in group:
                if id in found.tables:
                    yield {"id": str(id), "location": found.tables[id].location}
            for error in found.errors.values():
                say(str(error))
            self.failed += len(found.errors)
