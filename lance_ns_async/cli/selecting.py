"""The tables and namespaces that a text names: ids, patterns, and beginnings that a shell completes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as err
import typer

from lance_ns_async.cli import catalog as catalogs
from lance_ns_async.cli import errors
from lance_ns_async.cli.catalog import Catalog, suggest_id
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.errors import suggest
from lance_ns_async.model import NamespaceId, TableId, is_pattern
from lance_ns_async.rendering import MISSING

if TYPE_CHECKING:
    from lance_ns_async import Namespace
    from lance_ns_async.fleet import Row

_SHOWN = 5  # Maximum number of tables in a message.


@contextmanager
def open_table(chosen: Catalog, text: str) -> Iterator[tuple[Namespace, TableId]]:
    """Opens a catalog while the context is open, and provides it with the table that an id or a pattern names.

    Cost: those of `Catalog.open`, and for a pattern those of `select_tables`.
    """
    with open_tables(chosen, [text]) as (catalog, ids):
        if len(ids) > 1:
            raise Misuse(f"{text!r} matches {name_some(ids)}; use the id of one")
        yield catalog, ids[0]


@contextmanager
def open_tables(chosen: Catalog, texts: Sequence[str]) -> Iterator[tuple[Namespace, Sequence[TableId]]]:
    """Opens a catalog while the context is open, and provides it with the tables that ids and patterns name."""
    # Wrong ids are reported before the catalog is opened.
    named = [TableId(text) for text in texts if not is_pattern(text)]
    with chosen.open(*named) as catalog:
        yield catalog, _select_tables(catalog, texts)


def _select_tables(catalog: Namespace, texts: Sequence[str]) -> Sequence[TableId]:
    """Returns the ids in the texts, whether or not the tables exist, and those that match patterns, without duplicates.

    Cost: listings of the namespaces in which tables can match; a bulk describe for patterns that end with a name.
    """
    ids: dict[TableId, None] = {}
    for text in texts:
        matches = match_tables(catalog, text) if is_pattern(text) else [TableId(text)]
        if not matches:
            raise err.TableNotFoundError(f"no table matches {text!r}; list the tables with lance-ns ls -r")
        ids.update(dict.fromkeys(matches))
    return list(ids)


def find_version(catalog: Namespace, id: TableId, text: str | None, branch: str | None = None) -> dict[str, Any]:
    """Returns the id of a table, a version and its branch as the fields of a request.

    Args:
        text: The number of a version or a tag; None means the newest version.
        branch: None means that of the tag, or else main.

    Cost: none for a number, the listing of the tags for a tag.
    """
    fields = {"id": list(id), "branch": branch}
    if text is None or text.isdecimal():
        return {**fields, "version": None if text is None else int(text)}
    tags = catalog.list_table_tags({"id": list(id)}).tags
    if text not in tags:
        is_branch = text in catalog.list_table_branches({"id": list(id)}).branches
        advice = f"it is a branch: use --branch {text}" if is_branch else suggest(text, tags, quoted=True)
        raise err.TableTagNotFoundError(f"{id}: no tag {text!r}; {advice}")
    tag = tags[text]
    if branch is not None and branch != (tag.branch or "main"):
        raise Misuse(f"--branch {branch}: tag {text!r} is of branch {tag.branch or 'main'}; omit --branch")
    return {**fields, "version": tag.version, "branch": tag.branch}


def match_tables(catalog: Namespace, pattern: str) -> Sequence[TableId]:
    """Returns the tables that match a pattern, in the order of their ids; its cost is in `open_tables`."""
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

    parsed = Pattern.parse(pattern)
    # Patterns compare only names.
    return (it for it in catalog.iter_namespaces(parsed.start, recursive=True) if parsed.matches(TableId(it)))


def hint_at_missing(catalog: Namespace, what: Sequence[str], rows: Iterable[Row]) -> None:
    """Writes what ids probably mean that do not exist, according to the rows of a report. Cost: as `suggest_id`."""
    missing = {row.id for row in rows if row.outcome == MISSING}
    ids = [id for id in (TableId(text) for text in what if not is_pattern(text)) if id in missing]
    for id in ids[:_SHOWN]:
        if (suggestion := suggest_id(catalog, id)) is not None:
            errors.hint(f"{id}: {suggestion}")


def name_some(ids: Sequence[TableId]) -> str:
    """Returns the number of tables, and the ids of some, for a message."""
    more = ", ..." if len(ids) > _SHOWN else ""
    return f"{len(ids):,} tables ({', '.join(shlex.quote(str(id)) for id in ids[:_SHOWN])}{more})"


_MOST = 200  # Maximum number of tables, and of namespaces, that are offered to a shell.
_WITHIN, _USUALLY = "LANCE_NS_COMPLETION_TIMEOUT", "3s"  # Variable with the time for an answer, and its default.


def complete_profile(context: typer.Context) -> Sequence[str]:
    """Returns the names of all profiles."""
    # An error would be written in the middle of the command that is being typed.
    with suppress(Misuse):
        files = catalogs.files_with_profiles(_option(context, "config"))
        return [name for name, _ in catalogs.list_profiles(files)]
    return []


def complete_table(context: typer.Context, incomplete: str) -> Sequence[str]:
    """Returns the tables and namespaces whose ids start with the text. Cost: two listings for each level."""
    return _complete(context, incomplete, with_tables=True)


def complete_namespace(context: typer.Context, incomplete: str) -> Sequence[str]:
    """Returns the namespaces whose ids start with the text. Cost: one listing for each level."""
    return _complete(context, incomplete, with_tables=False)


def _complete(context: typer.Context, incomplete: str, *, with_tables: bool) -> Sequence[str]:
    properties = [*_options(context.parent).get("properties", ()), *_options(context).get("properties", ())]
    delimiter = "$" if "$" in incomplete else "."
    parent, _, _ = incomplete.rpartition(delimiter)
    with suppress(Misuse, err.LanceNamespaceError):
        impl, profile, config = (_option(context, name) for name in ("impl", "profile", "config"))
        chosen = catalogs.require(impl, properties, profile, config)
        limits = {"operation_timeout": os.environ.get(_WITHIN, _USUALLY), "max_retries": "0"}
        with Catalog(chosen.impl, {**chosen.properties, **limits}).open() as catalog:
            return list(offers(catalog, NamespaceId(parent), incomplete, delimiter, with_tables=with_tables))
    return []


def offers(
    catalog: Namespace, parent: NamespaceId, incomplete: str, delimiter: str, *, with_tables: bool
) -> Iterator[str]:
    """Yields ids in the spelling of the text; with a single namespace, also what is in it."""

    def spell(id: Sequence[str]) -> str:
        return delimiter.join(id)

    def matches(id: Sequence[str]) -> bool:
        # A name with a delimiter in it would be read as two names.
        return spell(id).startswith(incomplete) and not any(delimiter in name for name in id)

    below = [parent.child(it.name) for it in islice(catalog.iter_namespaces(parent), _MOST)]
    below = [id for id in below if matches(id)]
    tables: list[str] = []
    # Some catalogs have no tables at their root.
    with suppress(err.LanceNamespaceError):
        names = catalog.list_tables({"id": list(parent), "limit": _MOST}).tables if with_tables else ()
        tables = [spell(id) for id in map(parent.table, names) if matches(id)]
    yield from tables
    yield from map(spell, below)
    if with_tables and len(below) == 1 and not tables:
        yield from offers(catalog, below[0], f"{spell(below[0])}{delimiter}", delimiter, with_tables=with_tables)


def _options(context: Any) -> Mapping[str, Any]:
    return {} if context is None else {key: value for key, value in context.params.items() if value}


def _option(context: typer.Context, name: str) -> Any:
    """Returns the value of an option after the command, or else before it."""
    return _options(context).get(name) or _options(context.parent).get(name)
