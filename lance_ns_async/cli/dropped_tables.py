"""The commands on dropped tables that can be brought back."""

from __future__ import annotations

from typing import Annotated

from lance_namespace.errors import TableAlreadyExistsError
from typer import Argument, Option

from lance_ns_async.cli import output
from lance_ns_async.cli.changing import ask
from lance_ns_async.cli.errors import shows_progress
from lance_ns_async.cli.options import (
    ChangeFormat,
    CommonOptions,
    DryRun,
    OutputFormat,
    StorageOptions,
    Yes,
    exit_after,
)
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.parsing import parse_storage_options
from lance_ns_async.model import TableId

Under = Annotated[
    str | None, Option(metavar="URI", help="Folder or bucket of the tables; by default the root of the catalog.")
]


def dropped(
    on: CommonOptions, under: Under = None, storage_option: StorageOptions = None, format: OutputFormat = Format.TABLE
) -> None:
    """List the dropped tables that can be brought back, the last one first."""
    from lance_ns_async.fleet import sync

    with on.require().open() as catalog:
        options = parse_storage_options(storage_option)
        report = sync.dropped(catalog, under=under, storage_options=options, progress=shows_progress())
    columns = ("id", "outcome", "dropped", "until", "rows", "size", "name_is_free", "location")
    output.write_report(report, columns, format)
    exit_after(report.problems)


def undrop(
    on: CommonOptions,
    table: Annotated[str, Argument(help="Id that the table had, or its location.")],
    as_: Annotated[str | None, Option("--as", metavar="ID", help="Bring it back under this id.")] = None,
    under: Under = None,
    storage_option: StorageOptions = None,
    format: ChangeFormat = None,
) -> None:
    """Bring back a dropped table, with its versions, tags, branches and indexes."""
    from lance_ns_async.fleet import sync

    with on.require().open() as catalog, output.tell_changes(format) as tell:
        options = parse_storage_options(storage_option)
        id = None if as_ is None else TableId(as_)
        try:
            back = sync.undrop(catalog, table, as_=id, under=under, storage_options=options)
        except TableAlreadyExistsError as e:
            raise TableAlreadyExistsError(str(e).replace("pass as_", "use --as ID")) from e
        tell(f"brought back {back.id}", back.id, "brought back", back.location)


def purge(
    on: CommonOptions,
    older_than: Annotated[
        str | None, Option(metavar="AGE", help="Only tables that were dropped so long ago, e.g. 30d.")
    ] = None,
    under: Under = None,
    storage_option: StorageOptions = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Delete the data of dropped tables whose retention has ended."""
    from lance_ns_async.fleet import sync

    with on.require().open() as catalog:
        if not dry_run:
            ask("Delete the data of all dropped tables whose retention has ended?", yes, look_first="--dry-run")
        report = sync.purge(
            catalog,
            older_than=older_than,
            under=under,
            storage_options=parse_storage_options(storage_option),
            dry_run=dry_run,
            progress=shows_progress(),
        )
    output.write_report(report, ("id", "outcome", "dropped", "until", "size", "location", "reason"), format)
    exit_after(report.problems)
