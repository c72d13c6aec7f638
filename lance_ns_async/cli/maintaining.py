"""Execution and output of the command `maintain`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lance_ns_async.cli import output
from lance_ns_async.cli.catalog import Catalog
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.output import Format
from lance_ns_async.fleet.maintenance.options import CleanupOptions, CompactOptions
from lance_ns_async.rendering import printable

if TYPE_CHECKING:
    import pyarrow as pa

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


def options(
    *,
    compact: bool,
    target_rows: int | None,
    min_fragments: int,
    index: bool,
    cleanup: bool,
    older_than: str,
    retain: int | None,
    delete_unverified: bool,
) -> dict[str, Any]:
    """Returns the arguments of `maintain` for the options of the command line."""
    age = None if older_than == "any" else older_than
    clean = CleanupOptions(older_than=age, retain_versions=retain, delete_unverified=delete_unverified)
    merge = CompactOptions(target_rows=target_rows, min_fragments=min_fragments)
    return {"compact": compact and merge, "index": index, "cleanup": cleanup and clean}


def run(
    catalog: Catalog,
    what: Sequence[str],
    arguments: Mapping[str, Any],
    *,
    dry_run: bool,
    engine: str,
    master: str | None,
    settings: Sequence[str],
) -> Report | MaintenancePlan:
    """Returns the report of the run; the plan if it is a dry run, which never starts Spark."""
    if (master or settings) and engine == "local":
        raise Misuse("--master and --conf: only with --engine spark")
    from lance_ns_async.fleet import sync

    with ExitStack() as stack:
        namespace = stack.enter_context(catalog.open())
        if dry_run:
            return sync.plan_maintenance(namespace, list(what), progress=True, **arguments)
        executor = None
        if engine == "spark":
            from lance_ns_async.spark import SparkEngine
            from lance_ns_async.spark.local import local_spark

            config = {**_settings(settings), **({} if master is None else {"spark.master": master})}
            spark = local_spark("lance-ns maintain", config=config)
            stack.callback(spark.stop)
            executor = SparkEngine(spark)
        return sync.maintain(namespace, list(what), engine=executor, progress=True, **arguments)


def write(result: Report | MaintenancePlan, format: Format, file: Path | None) -> None:
    """Writes the rows to the file or to standard output, and the summary and the problems to standard error."""
    from lance_ns_async.fleet import Report

    if format is Format.PARQUET:
        output.write_parquet(_arrow(result), file)
        print(result, file=sys.stderr)
        return
    with output.open_text(file) as stream:
        if format is Format.JSON:
            stream.write(result.to_json() + "\n")
        elif isinstance(result, Report):
            rows = [row.to_dict() for row in result.rows if row.outcome != "unchanged"]
            output.write([_cells(row, REPORT_COLUMNS) for row in rows], REPORT_COLUMNS, format, stream)
        else:
            rows = [table.to_dict() for table in result.pending]
            output.write([_cells(row, PLAN_COLUMNS) for row in rows], PLAN_COLUMNS, format, stream)
    for row in () if isinstance(result, Report) else result.problems:
        print(f"lance-ns: {row.outcome}: {printable(row.reason)}", file=sys.stderr)
    print(result.line() if file is None and format is not Format.JSON else result, file=sys.stderr)


def _arrow(result: Report | MaintenancePlan) -> pa.Table:
    import pyarrow as pa

    from lance_ns_async.fleet import Report

    if isinstance(result, Report):
        return result.to_arrow()
    return pa.Table.from_pylist([table.to_dict() for table in result.tables])


def _settings(texts: Sequence[str]) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            # The message does not contain the text, because it may be a secret without its key.
            raise Misuse("--conf: must be KEY=VALUE, but one has no key or no '='")
        settings[key] = value
    return settings


def _cells(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    values = {name: row.get(name) for name in columns}
    return {name: ", ".join(value) if isinstance(value, list) else value for name, value in values.items()}
