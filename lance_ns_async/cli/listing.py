"""Output of the commands `ls` and `describe`: ids as the catalog returns them, locations, and single tables."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from lance_ns_async.cli.errors import say
from lance_ns_async.cli.output import OutputRow
from lance_ns_async.model import NamespaceId, TableId

if TYPE_CHECKING:
    from lance_ns_async import Namespace

_GROUP = 5_000
"""Number of tables that are located together: enough for concurrency, but few enough for early output."""

MASK = "***"
"""The value that replaces storage options, which may be secrets."""


class Listing:
    """The rows of one `ls`; after they are read, `failures` is the number of tables that could not be located."""

    columns: Sequence[str]

    def __init__(self, namespace: Namespace, start: str, *, recursive: bool, namespaces: bool, long: bool) -> None:
        self._namespace = namespace
        self._start = NamespaceId.parse(start)
        self._recursive = recursive
        self._namespaces = namespaces
        self._long = long and not namespaces
        self.columns = ("id", "location") if self._long else ("id",)
        self.failures: int = 0

    def rows(self) -> Generator[OutputRow, None, None]:
        """Yields a row for each namespace or table, as soon as it is known."""
        if self._namespaces:
            for namespace in self._namespace.iter_namespaces(self._start, recursive=self._recursive):
                yield {"id": str(namespace)}
            return
        tables = self._namespace.iter_tables(self._start, recursive=self._recursive)
        if self._long:
            yield from self._locate(tables)
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

    def _locate(self, tables: Iterable[TableId]) -> Iterator[OutputRow]:
        waiting = iter(tables)
        while group := list(islice(waiting, _GROUP)):
            result = self._namespace.describe_tables(group)
            for id in group:
                if id in result.tables:
                    yield {"id": str(id), "location": result.tables[id].location}
            for error in result.errors.values():
                say(str(error))
            self.failures += len(result.errors)


def describe(namespace: Namespace, table: str, *, version: int | None, details: bool, show_secrets: bool) -> OutputRow:
    """Returns the catalog's description of a table, with `details` also the dataset's; omits unknown fields."""
    from lance_namespace import DescribeTableRequest

    id = TableId.parse(table)
    request = DescribeTableRequest(id=list(id), version=version, with_table_uri=True, load_detailed_metadata=details)
    description = namespace.describe_table(request).model_dump(by_alias=True, exclude_none=True)
    options = description.get("storage_options")
    if options and not show_secrets:
        # Only the storage defines which options are secret, so all values are hidden; the names show which are set.
        description["storage_options"] = dict.fromkeys(options, MASK)
    return {"id": str(id), **{key: value for key, value in description.items() if value not in ({}, [])}}
