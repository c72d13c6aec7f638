"""The commands `create`, `register`, `deregister`, `drop` and `rename`: changes of tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.common import (
    ChangeFormat,
    CommonOptions,
    DryRun,
    NewTable,
    TableName,
    TableNames,
    Yes,
    exit_after,
    with_common_options,
)
from lance_ns_async.cli.errors import Code, Misuse, say
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.parsing import parse_pair
from lance_ns_async.cli.selecting import name_some, open_table, select_tables

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_ns_async import Namespace
    from lance_ns_async.model import TableId

_FORMATS = {  # Formats of files by suffix, as pyarrow names them.
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".orc": "orc",
}


@with_common_options
def create(
    on: CommonOptions,
    table: NewTable,
    file: Annotated[
        Path | None,
        typer.Argument(help="Parquet, CSV, JSON lines, Arrow or ORC file with the rows.", show_default=False),
    ] = None,
    mode: Annotated[
        Literal["create", "append", "overwrite"], typer.Option("--mode", help="What to do if the table exists.")
    ] = "create",
    location: Annotated[
        str | None, typer.Option("--location", help="Where the data goes; only without a file.", show_default=False)
    ] = None,
    format: ChangeFormat = None,
) -> None:
    """Create a table with the rows of a file, or declare it without rows."""
    from lance_ns_async.model import TableId
    from lance_ns_async.rendering import counted

    id = TableId(table)
    if file is None and mode != "create":
        raise Misuse(f"--mode {mode}: requires a file with rows")
    if file is not None and location is not None:
        raise Misuse("--location: only without a file; declare the table first, and then use --mode append")
    rows = None if file is None else _rows(file)
    with on.require().open() as catalog, output.tell_changes(format) as tell:
        if rows is None:
            place = catalog.declare_table({"id": list(id), "location": location}).location
            tell(f"declared {id} at {place}", id, "declared", place)
        else:
            dataset = catalog.write(id, rows, mode=mode)
            sentence = f"wrote version {dataset.version} of {id}, which has {counted(dataset.count_rows(), 'rows')}"
            tell(sentence, id, "written", str(dataset.uri))


@with_common_options
def register(
    on: CommonOptions,
    table: NewTable,
    location: Annotated[str, typer.Argument(help="Location of the Lance table.", show_default=False)],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a registration with this id.")] = False,
    set_property: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Property of the table; may be repeated.")
    ] = None,
    format: ChangeFormat = None,
) -> None:
    """Register existing data as a table."""
    from lance_namespace.errors import TableNotFoundError

    from lance_ns_async.model import TableId

    id = TableId(table)
    properties = dict(parse_pair("--set", text) for text in set_property or ())
    mode = "Overwrite" if overwrite else "Create"
    request = {"id": list(id), "location": location, "mode": mode, "properties": properties or None}
    with on.require().open() as catalog, output.tell_changes(format) as tell:
        place = catalog.register_table(request).location
        tell(f"registered {id} at {place}", id, "registered", place)
        try:
            catalog.open(id)
        except TableNotFoundError as error:
            say(f"warning: {error}")


@with_common_options
def deregister(on: CommonOptions, tables: TableNames, dry_run: DryRun = False, format: ChangeFormat = None) -> None:
    """Remove tables from the catalog; their data stays."""
    with _selected(on, tables) as (catalog, ids):
        _change_each(
            ids, "deregister", "deregistered", catalog.describe_table, catalog.deregister_table, dry_run, format
        )


@with_common_options
def drop(
    on: CommonOptions, tables: TableNames, yes: Yes = False, dry_run: DryRun = False, format: ChangeFormat = None
) -> None:
    """Remove tables from the catalog, and delete their data."""
    with _selected(on, tables) as (catalog, ids):
        if not dry_run:
            what = str(ids[0]) if len(ids) == 1 else name_some(ids)
            ask(f"Delete the data of {what}?", yes, look_first="--dry-run")
        _change_each(ids, "drop", "dropped", catalog.describe_table, catalog.drop_table, dry_run, format)


@with_common_options
def rename(
    on: CommonOptions,
    table: TableName,
    new: Annotated[
        str, typer.Argument(help="New name; or new id, to move the table to another namespace.", show_default=False)
    ],
    format: ChangeFormat = None,
) -> None:
    """Rename a table; its data stays where it is."""
    from lance_ns_async.model import TableId

    target = TableId(new)
    with open_table(on, table) as (catalog, id), output.tell_changes(format) as tell:
        if len(target) == 1:
            target = id.parent.table(target.name)
        request = {"id": list(id), "new_table_name": target.name, "new_namespace_id": list(target.parent)}
        catalog.rename_table(request)
        tell(f"renamed {id} to {target}", target, "renamed")


def ask(question: str, yes: bool, *, look_first: str) -> None:
    """Asks whether to go on; ends the command if the answer is no.

    Args:
        question: What will be done.
        yes: The option `--yes`, which is an answer.
        look_first: What shows before what will be done, for the error without a terminal.
    """
    from lance_ns_async.rendering import printable

    if yes:
        return
    if not sys.stdin.isatty():
        raise Misuse(f"{question} Confirm it with --yes, or look first with {look_first}")
    if not typer.confirm(printable(question), err=True):
        say("nothing was changed")
        raise typer.Exit(Code.FAILURE)


@contextmanager
def _selected(on: CommonOptions, texts: Sequence[str]) -> Iterator[tuple[Namespace, Sequence[TableId]]]:
    """Opens the catalog while the context is open, and provides it with the tables that ids and patterns name."""
    from lance_ns_async.model import TableId, is_pattern

    # Wrong ids are reported before the catalog is opened.
    named = [TableId(text) for text in texts if not is_pattern(text)]
    with on.require().open(*named) as catalog:
        yield catalog, select_tables(catalog, texts)


def _change_each(
    ids: Sequence[TableId],
    verb: str,
    done: str,
    describe: Callable[[Any], Any],
    change: Callable[[Any], Any],
    dry_run: bool,
    format: Format | None,
) -> None:
    """Changes tables one after another; goes on after failures, and ends with their exit code."""
    from lance_namespace.errors import LanceNamespaceError

    failures: list[LanceNamespaceError] = []
    with output.tell_changes(format) as tell:
        for id in ids:
            request = {"id": list(id)}
            try:
                if dry_run:
                    place = describe(request).location
                    tell(f"would {verb} {id} at {place}", id, f"would {verb}", place)
                else:
                    change(request)
                    tell(f"{done} {id}", id, done)
            except LanceNamespaceError as error:
                if len(ids) == 1:
                    raise
                say(str(error))
                failures.append(error)
    exit_after(failures)


def _rows(file: Path) -> pa.RecordBatchReader:
    """Returns a reader of the rows in a file; raises `Misuse` if it cannot be read."""
    import pyarrow as pa
    from pyarrow import dataset

    format = _FORMATS.get(file.suffix.lower())
    if format is None:
        raise Misuse(f"{file}: unknown suffix; use one of {', '.join(_FORMATS)}")
    try:
        return dataset.dataset(str(file), format=format).scanner().to_reader()
    except FileNotFoundError:
        raise Misuse(f"{file}: there is no such file") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise Misuse(f"{file}: cannot be read ({error})") from error
