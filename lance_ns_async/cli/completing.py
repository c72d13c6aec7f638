"""Completion of profiles, namespaces and tables in a shell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from lance_ns_async.cli import profiles
from lance_ns_async.cli.errors import Misuse

if TYPE_CHECKING:
    from lance_ns_async import Namespace
    from lance_ns_async.model import NamespaceId

_MOST = 200  # Maximum number of tables, and of namespaces, that are offered.
_WITHIN, _USUALLY = "LANCE_NS_COMPLETION_TIMEOUT", "3s"
"""The variable with the time for an answer of the catalog while a shell waits, and its default."""


def complete_profile(context: typer.Context) -> Sequence[str]:
    """Returns the names of all profiles."""
    # An error would be written in the middle of the command that is being typed.
    with suppress(Misuse):
        files = profiles.files_with_profiles(_option(context, "config"), os.environ)
        return [name for name, _ in profiles.list_all(files)]
    return []


def complete_table(context: typer.Context, incomplete: str) -> Sequence[str]:
    """Returns the tables and namespaces whose ids start with the text. Cost: two listings for each level."""
    return _complete(context, incomplete, with_tables=True)


def complete_namespace(context: typer.Context, incomplete: str) -> Sequence[str]:
    """Returns the namespaces whose ids start with the text. Cost: one listing for each level."""
    return _complete(context, incomplete, with_tables=False)


def _complete(context: typer.Context, incomplete: str, *, with_tables: bool) -> Sequence[str]:
    from lance_namespace.errors import LanceNamespaceError

    from lance_ns_async.cli.catalog import Catalog, require
    from lance_ns_async.model import NamespaceId

    properties = [*_options(context.parent).get("properties", ()), *_options(context).get("properties", ())]
    delimiter = "$" if "$" in incomplete else "."
    parent, _, _ = incomplete.rpartition(delimiter)
    with suppress(Misuse, LanceNamespaceError):
        impl, profile, config = (_option(context, name) for name in ("impl", "profile", "config"))
        catalog = require(impl, properties, profile, config)
        limits = {"operation_timeout": os.environ.get(_WITHIN, _USUALLY), "max_retries": "0"}
        with Catalog(catalog.impl, {**catalog.properties, **limits}).open() as namespace:
            return list(_offers(namespace, NamespaceId(parent), incomplete, delimiter, with_tables))
    return []


def _offers(
    catalog: Namespace, parent: NamespaceId, incomplete: str, delimiter: str, with_tables: bool
) -> Iterator[str]:
    """Yields ids in the spelling of the text; with a single namespace, also what is in it."""
    from lance_namespace.errors import LanceNamespaceError

    def spell(id: Sequence[str]) -> str:
        return delimiter.join(id)

    def matches(id: Sequence[str]) -> bool:
        # A name with a delimiter in it would be read as two names.
        return spell(id).startswith(incomplete) and not any(delimiter in name for name in id)

    below = [parent.child(it.name) for it in islice(catalog.iter_namespaces(parent), _MOST)]
    below = [id for id in below if matches(id)]
    tables: list[str] = []
    # Some catalogs have no tables at their root.
    with suppress(LanceNamespaceError):
        names = catalog.list_tables({"id": list(parent), "limit": _MOST}).tables if with_tables else ()
        tables = [spell(id) for id in map(parent.table, names) if matches(id)]
    yield from tables
    yield from map(spell, below)
    if with_tables and len(below) == 1 and not tables:
        yield from _offers(catalog, below[0], f"{spell(below[0])}{delimiter}", delimiter, with_tables)


def _options(context: Any) -> Mapping[str, Any]:
    return {} if context is None else {key: value for key, value in context.params.items() if value}


def _option(context: typer.Context, name: str) -> Any:
    """Returns the value of an option after the command, or else before it."""
    return _options(context).get(name) or _options(context.parent).get(name)
