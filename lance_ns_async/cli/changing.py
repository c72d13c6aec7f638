"""The commands that create, register, change, rename, deregister and drop tables and namespaces."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import lance_namespace.errors as err
import typer
from typer import Argument, Option

from lance_ns_async.cli import output
from lance_ns_async.cli.errors import Code, Misuse, say
from lance_ns_async.cli.options import (
    Branch,
    ChangeFormat,
    CommonOptions,
    DryRun,
    NamespaceName,
    NewTable,
    Repeated,
    TableName,
    TableNames,
    Yes,
    exit_after,
)
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.parsing import parse_pair, parse_pairs
from lance_ns_async.cli.selecting import name_some, open_table, open_tables
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.rendering import counted, printable, time_span

if TYPE_CHECKING:
    from lance_ns_async import AsyncNamespace, Namespace


def create(
    on: CommonOptions,
    table: NewTable,
    file: Annotated[Path | None, Argument(help="Parquet, CSV, JSON, Arrow or ORC file with the rows.")] = None,
    mode: Annotated[
        Literal["create", "append", "overwrite"], Option(help="What to do if the table exists.")
    ] = "create",
    branch: Branch = None,
    schema_of: Annotated[
        str | None,
        Option(metavar="TABLE", help="Table whose columns have the types to use; with append, the table itself."),
    ] = None,
    location: Annotated[str | None, Option(help="Where the data goes; only without a file.")] = None,
    format: ChangeFormat = None,
) -> None:
    """Create a table with the rows of a file, or declare it without rows."""
    id = TableId(table)
    if file is None and (mode != "create" or branch is not None):
        raise Misuse(f"{f'--branch {branch}' if branch else f'--mode {mode}'}: requires a file with rows")
    if file is not None and location is not None:
        raise Misuse("--location: only without a file; declare the table first, and then use --mode append")
    with on.require().open() as catalog, output.tell_changes(format) as tell:
        if file is None:
            place = catalog.declare_table({"id": list(id), "location": location}).location
            tell(f"declared {id} at {place}", id, "declared", place)
        else:
            from lance_ns_async.cli.values import read_rows

            schema = None if schema_of is None else catalog.open(TableId(schema_of)).schema
            if mode == "append":
                # A declared table has no columns yet.
                with suppress(err.TableNotFoundError):
                    schema = catalog.open(id, branch=branch).schema
            dataset = catalog.write(id, read_rows(file, schema), mode=mode, branch=branch)
            sentence = f"wrote version {dataset.version} of {id}, which has {counted(dataset.count_rows(), 'rows')}"
            tell(sentence, id, "written", str(dataset.uri))


def register(
    on: CommonOptions,
    table: NewTable,
    location: Annotated[str, Argument(help="Location of the Lance table.")],
    overwrite: Annotated[bool, Option("--overwrite", help="Replace a registration with this id.")] = False,
    set_property: Annotated[
        Repeated, Option("--set", metavar="KEY=VALUE", help="Property of the table; may be repeated.")
    ] = None,
    format: ChangeFormat = None,
) -> None:
    """Register existing data as a table."""
    id = TableId(table)
    properties = parse_pairs("--set", set_property)
    mode = "Overwrite" if overwrite else "Create"
    request = {"id": list(id), "location": location, "mode": mode, "properties": properties or None}
    with on.require().open() as catalog, output.tell_changes(format) as tell:
        place = catalog.register_table(request).location
        tell(f"registered {id} at {place}", id, "registered", place)
        try:
            catalog.open(id)
        except err.TableNotFoundError as error:
            say(f"warning: {error}")


def deregister(on: CommonOptions, tables: TableNames, dry_run: DryRun = False, format: ChangeFormat = None) -> None:
    """Remove tables from the catalog; their data stays."""
    with open_tables(on.require(), tables) as (catalog, ids):
        describe = catalog.describe_table if dry_run else None
        _change_each(ids, "deregister", "deregistered", catalog.deregister_table, describe, format)


def drop(
    on: CommonOptions,
    tables: TableNames,
    keep: Annotated[
        str | None,
        Option(metavar="TIME", help="Keep the data for this time, e.g. 7d: lance-ns undrop brings the table back."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    format: ChangeFormat = None,
) -> None:
    """Remove tables from the catalog, and delete their data, at once or after a time."""
    from lance_ns_async.settings import seconds as parse_seconds

    with open_tables(on.require(), tables) as (catalog, ids):
        seconds = catalog.run(_retention) if keep is None else parse_seconds("--keep", keep)
        if not dry_run:
            what = str(ids[0]) if len(ids) == 1 else name_some(ids)
            question = f"Drop {what}, and {_keeps(seconds)}?" if seconds else f"Delete the data of {what}?"
            ask(question, yes, look_first="--dry-run")
        describe = catalog.describe_table if dry_run else None
        drop_table = partial(catalog.drop_table, keep=seconds)
        _change_each(ids, "drop", "dropped", drop_table, describe, format)
        if dry_run:
            say(f"would {_keeps(seconds)}" if seconds else "would delete the data at once")
        elif seconds:
            more = "; lance-ns dropped lists all" if len(ids) > 1 else ""
            say(f"to undo it within {time_span(seconds)}: lance-ns undrop {shlex.quote(str(ids[0]))}{more}")


def _keeps(seconds: float) -> str:
    return f"keep the data for {time_span(seconds)}"


async def _retention(namespace: AsyncNamespace) -> float:
    """Returns the retention of drops in the properties of a catalog, in seconds."""
    return namespace.session.drop_retention


def delete(
    on: CommonOptions,
    table: TableName,
    filter: Annotated[str, Argument(help="Condition in SQL, e.g. 'price > 10'; true means all rows.")],
    branch: Branch = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    format: ChangeFormat = None,
) -> None:
    """Delete the rows of a table that match a filter; old versions keep them."""
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        request = {"id": list(id), "branch": branch, "predicate": filter}
        if rows := _count_to_change(catalog, request, id, "delete", tell, yes=yes, dry_run=dry_run):
            version = catalog.delete_from_table(request).version
            tell(f"deleted {counted(rows, 'rows')} of {id}; its version is now {version}", id, "rows deleted")


def update(
    on: CommonOptions,
    table: TableName,
    updates: Annotated[
        list[str], Argument(metavar="COLUMN=SQL", help="Column and its new value in SQL, e.g. 'price=price * 2'.")
    ],
    filter: Annotated[
        str | None, Option("--filter", "--where", "-f", metavar="SQL", help="Only rows that match, e.g. 'price > 10'.")
    ] = None,
    branch: Branch = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    format: ChangeFormat = None,
) -> None:
    """Set columns of a table to the values of SQL expressions; old versions keep the old values."""
    pairs = [list(parse_pair("updates", text, "COLUMN=SQL")) for text in updates]
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        request = {"id": list(id), "branch": branch, "predicate": filter}
        if _count_to_change(catalog, request, id, "update", tell, yes=yes, dry_run=dry_run):
            response = catalog.update_table({**request, "updates": pairs})
            rows = counted(response.updated_rows, "rows")
            tell(f"updated {rows} of {id}; its version is now {response.version}", id, "rows updated")


def _count_to_change(
    catalog: Namespace,
    request: Mapping[str, Any],
    id: TableId,
    verb: str,
    tell: output.TellChange,
    *,
    yes: bool,
    dry_run: bool,
) -> int:
    """Returns the number of rows to change, after a question; 0 after telling that there are none, or in a dry run.

    Cost: the count of the rows.
    """
    count = catalog.count_table_rows(request).count or 0
    rows = f"{counted(count, 'rows')} of {id}"
    if dry_run:
        tell(f"would {verb} {rows}", id, f"would {verb} rows")
    elif not count:
        tell(f"no row of {id} matches; nothing was changed", id, "unchanged")
    else:
        ask(f"{verb.capitalize()} {rows}?", yes, look_first="--dry-run")
    return 0 if dry_run else count


def rename(
    on: CommonOptions,
    table: TableName,
    new: Annotated[str, Argument(help="New name; or new id, to move the table to another namespace.")],
    format: ChangeFormat = None,
) -> None:
    """Rename a table; its data stays where it is."""
    target = TableId(new)
    with open_table(on.require(), table) as (catalog, id), output.tell_changes(format) as tell:
        if len(target) == 1:
            target = id.parent.table(target.name)
        request = {"id": list(id), "new_table_name": target.name, "new_namespace_id": list(target.parent)}
        catalog.rename_table(request)
        tell(f"renamed {id} to {target}", target, "renamed")


def create_namespace(
    on: CommonOptions,
    namespace: NamespaceName,
    exist_ok: Annotated[bool, Option("--exist-ok", help="Succeed if the namespace exists.")] = False,
    set_property: Annotated[
        Repeated, Option("--set", metavar="KEY=VALUE", help="Property of the namespace; may be repeated.")
    ] = None,
    format: ChangeFormat = None,
) -> None:
    """Create a namespace."""
    id = NamespaceId(namespace)
    properties = parse_pairs("--set", set_property)
    mode = "ExistOk" if exist_ok else "Create"
    with on.require().open() as catalog, output.tell_changes(format) as tell:
        catalog.create_namespace({"id": list(id), "mode": mode, "properties": properties or None})
        tell(f"created {id}", id, "created")


def drop_namespace(
    on: CommonOptions,
    namespace: NamespaceName,
    cascade: Annotated[
        bool, Option("--cascade", help="Remove also the registrations in it, after a question; data stays.")
    ] = False,
    yes: Yes = False,
    format: ChangeFormat = None,
) -> None:
    """Drop an empty namespace."""
    id = NamespaceId(namespace)
    with on.require().open(id) as catalog, output.tell_changes(format) as tell:
        if cascade and catalog.run(_cascades):
            listing = f"lance-ns ls -r {shlex.quote(str(id))}"
            ask(f"Drop {id}, and remove all registrations in it?", yes, look_first=listing)
        catalog.drop_namespace({"id": list(id), "behavior": "Cascade" if cascade else "Restrict"})
        tell(f"dropped {id}", id, "dropped")


async def _cascades(namespace: AsyncNamespace) -> bool:
    """Returns whether a catalog drops namespaces with all that is in them."""
    return namespace.session.backend.capabilities.cascades


def ask(question: str, yes: bool, *, look_first: str) -> None:
    """Asks whether to go on, unless the option `--yes` is the answer; ends the command if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misuse(f"{question} Confirm it with --yes, or look first with {look_first}")
    if not typer.confirm(printable(question), err=True):
        say("nothing was changed")
        raise typer.Exit(Code.FAILURE)


def _change_each(
    ids: Sequence[TableId],
    verb: str,
    done: str,
    change: Callable[[Any], Any],
    describe: Callable[[Any], Any] | None,
    format: Format | None,
) -> None:
    """Changes tables one after another, or only describes them; goes on after failures, and ends with their code."""
    failures: list[err.LanceNamespaceError] = []
    with output.tell_changes(format) as tell:
        for id in ids:
            request = {"id": list(id)}
            try:
                if describe is not None:
                    place = describe(request).location
                    tell(f"would {verb} {id} at {place}", id, f"would {verb}", place)
                else:
                    change(request)
                    tell(f"{done} {id}", id, done)
            except err.LanceNamespaceError as error:
                if len(ids) == 1:
                    raise
                say(str(error))
                failures.append(error)
    exit_after(failures)
