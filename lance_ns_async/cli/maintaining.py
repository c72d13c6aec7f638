"""The command `maintain`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.common import (
    CommonOptions,
    FormatOrSuffix,
    Out,
    What,
    exit_after,
    require_tables,
    with_common_options,
)
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.output import Format, format_for
from lance_ns_async.cli.parsing import parse_pair
from lance_ns_async.cli.selecting import hint_at_missing

if TYPE_CHECKING:
    from lance_ns_async.fleet import MaintenancePlan, Report

PLAN_COLUMNS = (
    "id",
    "steps",
    "rows",
    "fragments",
    "small_fragments",
    "deleted_rows",
    "unindexed_rows",
    "old_versions",
    "removable_bytes",
    "task_bytes",
)
REPORT_COLUMNS = (
    "id",
    "outcome",
    "fragments_before",
    "fragments_after",
    "bytes_before",
    "bytes_after",
    "seconds",
    "reason",
)


@with_common_options
def maintain(
    on: CommonOptions,
    what: What,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show the plan.")] = False,
    compact: Annotated[
        bool, typer.Option("--compact/--no-compact", help="Merge small fragments and remove deleted rows.")
    ] = True,
    target_rows: Annotated[
        int | None, typer.Option("--target-rows", min=1, help="Rows of a compacted fragment; by default 1,048,576.")
    ] = None,
    min_fragments: Annotated[
        int, typer.Option("--min-fragments", min=1, help="Merge only if a table has this many fragments to merge.")
    ] = 2,
    index: Annotated[bool, typer.Option("--index/--no-index", help="Refresh indexes that lack rows.")] = True,
    cleanup: Annotated[
        bool, typer.Option("--cleanup/--no-cleanup", help="Remove old versions without tags, and unused files.")
    ] = True,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Minimum age of a version to remove, or 'any'.")
    ] = "14d",
    retain: Annotated[int | None, typer.Option("--retain", min=1, help="Number of newest versions that stay.")] = None,
    delete_unverified: Annotated[
        bool,
        typer.Option(
            "--delete-unverified",
            help="Delete unused files of any age, not only after 7 days; safe only while nobody else writes.",
        ),
    ] = False,
    engine: Annotated[
        Literal["local", "spark"], typer.Option("--engine", help="Work in this process, or with Spark.")
    ] = "local",
    master: Annotated[
        str | None, typer.Option("--master", help="Master of Spark; by default this machine.", show_default=False)
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark; may be repeated.")
    ] = None,
    format: FormatOrSuffix = None,
    out: Out = None,
) -> None:
    """Compact tables, refresh their indexes, and remove old versions."""
    from lance_ns_async.fleet import CleanupOptions, CompactOptions, sync

    merge = CompactOptions(target_rows=target_rows, min_fragments=min_fragments)
    age = None if older_than == "any" else older_than
    clean = CleanupOptions(older_than=age, retain_versions=retain, delete_unverified=delete_unverified)
    if (master or conf) and engine == "local":
        raise Misuse("--master and --conf: only with --engine spark")
    settings = dict(parse_pair("--conf", text) for text in conf or ())
    steps: dict[str, Any] = {"compact": compact and merge, "index": index, "cleanup": cleanup and clean}
    with ExitStack() as stack:
        namespace = stack.enter_context(on.require().open())
        executor = None
        if engine == "spark":
            from lance_ns_async.spark import SparkEngine
            from lance_ns_async.spark.local import local_spark

            config_of_spark = {**settings, **({} if master is None else {"spark.master": master})}
            spark = local_spark("lance-ns maintain", config=config_of_spark)
            stack.callback(spark.stop)
            executor = SparkEngine(spark)
        work: Any = sync.plan_maintenance if dry_run else sync.maintain
        result: Report | MaintenancePlan = work(
            namespace, what, engine=executor, progress=errors.shows_progress(), **steps
        )
        hint_at_missing(namespace, what, result.problems)
    _write(result, format_for(format, out), out)
    require_tables(result.problems, _count(result), what)
    exit_after(result.problems)


def _count(result: Report | MaintenancePlan) -> int:
    """Returns the number of the tables that exist."""
    from lance_ns_async.fleet import Report

    if isinstance(result, Report):
        return result.counters.get("tables", 0)
    return len(result.tables) + len(result.without_data)


def _write(result: Report | MaintenancePlan, format: Format, file: Path | None) -> None:
    """Writes the rows to the file or to standard output, and the summary and the problems to standard error."""
    from lance_ns_async.fleet import Report

    if isinstance(result, Report):
        rows = [row.to_dict() for row in result.rows if row.outcome != "unchanged"]
        output.write_result(result, rows, REPORT_COLUMNS, format, file)
    else:
        rows = [table.to_dict() for table in result.pending]
        rows = [{**row, "steps": ", ".join(row["steps"])} for row in rows]
        rows += [{"id": str(row.id), "steps": row.outcome} for row in result.without_data]
        output.write_result(result, rows, PLAN_COLUMNS, format, file)
        if format is not Format.PARQUET:
            for row in result.problems:
                errors.say(f"{row.outcome}: {row.reason}")
    is_short = file is None and format not in (Format.JSON, Format.PARQUET)
    errors.summarize(result.line() if is_short else result, problems=result.problems)
