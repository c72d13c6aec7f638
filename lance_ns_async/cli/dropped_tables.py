"""The commands on dropped tables that can be brought back."""

from __future__ import annotations

from typing import Annotated

from lance_namespace.errors import TableAlreadyExistsError
from typer import Argument, Option

from lance_ns_async.cli import output
from lance_ns_async.cli.changing import ask
from lance_ns_async.cli.errors import Misuse, say, shows_progress
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
from lance_ns_async.model import TableId, is_pattern
from lance_ns_async.tabular import ERRORS

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
    tables: Annotated[
        list[str], Argument(metavar="TABLE...", help="Ids that tables had, and patterns; or the location of one table.")
    ],
    as_: Annotated[str | None, Option("--as", metavar="ID", help="Bring one table back under this id.")] = None,
    under: Under = None,
    storage_option: StorageOptions = None,
    format: ChangeFormat = None,
) -> None:
    """Bring back dropped tables, with their versions, tags, branches and indexes."""
    from lance_ns_async.fleet import sync

    if is_many := len(tables) > 1 or is_pattern(tables[0]):
        if as_ is not None:
            raise Misuse("--as: only with one id or location")
    with on.require().open() as catalog, output.tell_changes(format) as tell:
        options = parse_storage_options(storage_option)
        if is_many:
            report = sync.undrop_many(catalog, tables, under=under, storage_options=options, progress=shows_progress())
            for row in report.rows:
                if isinstance(row.id, TableId) and row.outcome not in ERRORS:
                    tell(f"{row.outcome} {row.id}", row.id, row.outcome, row.location)
            for row in report.problems:
                say(row.reason)
            exit_after(report.problems)
            return
        table, id = tables[0], None if as_ is None else TableId(as_)
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
