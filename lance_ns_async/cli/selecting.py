"""The tables and namespaces that a command is about: ids, and patterns that match some."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lance_ns_async.cli import errors
from lance_ns_async.cli.catalog import suggest_id
from lance_ns_async.cli.common import CommonOptions
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.errors import suggest
from lance_ns_async.model import NamespaceId, TableId

if TYPE_CHECKING:
    from lance_ns_async import Namespace
    from lance_ns_async.fleet import Row
    from lance_ns_async.model import NamespaceId, TableId


_SHOWN = 5  # Maximum number of tables in a message.


@contextmanager
def open_table(on: CommonOptions, text: str) -> Iterator[tuple[Namespace, TableId]]:
    """Opens the catalog while the context is open, and provides it with the table that a text names.

    Args:
        on: The options of the command.
        text: An id, or a pattern that matches one table.

    Cost: those of `Catalog.open`, and for a pattern those of `select_tables`.
    """
    from lance_ns_async.model import TableId, is_pattern

    if not is_pattern(text):
        id = TableId(text)
        with on.require().open(id) as catalog:
            yield catalog, id
        return
    with on.require().open() as catalog:
        ids = select_tables(catalog, [text])
        if len(ids) > 1:
            raise Misuse(f"{text!r} matches {name_some(ids)}; use the id of one")
        yield catalog, ids[0]


def select_tables(catalog: Namespace, texts: Sequence[str]) -> Sequence[TableId]:
    """Returns the ids in the texts, whether or not the tables exist, and those that match patterns, without duplicates.

    Cost: listings of the namespaces in which tables can match; a bulk describe for patterns that end with a name.
    """
    from lance_namespace.errors import TableNotFoundError

    from lance_ns_async.model import TableId, is_pattern

    ids: dict[TableId, None] = {}
    for text in texts:
        matches = match_tables(catalog, text) if is_pattern(text) else [TableId(text)]
        if not matches:
            raise TableNotFoundError(f"no table matches {text!r}; list the tables with lance-ns ls -r")
        ids.update(dict.fromkeys(matches))
    return list(ids)


def find_version(catalog: Namespace, id: TableId, text: str | None) -> int | None:
    """Returns the number of a version, which is given by its number or by a tag; None for the newest.

    Cost: none for a number, the listing of the tags for a tag.
    """
    from lance_namespace.errors import TableTagNotFoundError

    if text is None or text.isdecimal():
        return None if text is None else int(text)
    tags = catalog.list_table_tags({"id": list(id)}).tags
    if text not in tags:
        raise TableTagNotFoundError(f"{id}: no tag {text!r}; {suggest(text, tags, quoted=True)}")
    return tags[text].version


def match_tables(catalog: Namespace, pattern: str) -> Sequence[TableId]:
    """Returns the tables that match a pattern, in the order of their ids; see `select_tables`."""
    from lance_ns_async.many.patterns import Pattern
    from lance_ns_async.many.search import search

    parsed = Pattern.parse(pattern)
    result = catalog.run(lambda client: search(client.session, [parsed], max_in_flight=client.session.workers()))
    for error in (*result.errors.values(), *result.doubtful.values()):
        raise error
    existing = catalog.describe_tables(list(result.guesses)).tables if result.guesses else {}
    return sorted({*result.tables, *existing})


def match_namespaces(catalog: Namespace, pattern: str) -> Iterator[NamespaceId]:
    """Yields the namespaces that match a pattern. Cost: listings of the namespaces below its first names."""
    from lance_ns_async.many.patterns import Pattern
    from lance_ns_async.model import TableId

    parsed = Pattern.parse(pattern)
    for id in catalog.iter_namespaces(parsed.start, recursive=True):
        # Patterns compare only names.
        if parsed.matches(TableId(id)):
            yield id


def hint_at_missing(catalog: Namespace, what: Sequence[str], rows: Iterable[Row]) -> None:
    """Writes what ids probably mean that do not exist, according to the rows of a report. Cost: as `suggest_id`."""
    from lance_ns_async.model import TableId, is_pattern
    from lance_ns_async.rendering import MISSING

    missing = {row.id for row in rows if row.outcome == MISSING}
    ids = [id for id in (TableId(text) for text in what if not is_pattern(text)) if id in missing]
    for id in ids[:_SHOWN]:
        if (suggestion := suggest_id(catalog, id)) is not None:
            errors.hint(f"{id}: {suggestion}")


def name_some(ids: Sequence[TableId]) -> str:
    """Returns the number of tables, and the ids of some, for a message."""
    more = ", ..." if len(ids) > _SHOWN else ""
    return f"{len(ids):,} tables ({', '.join(shlex.quote(str(id)) for id in ids[:_SHOWN])}{more})"
