"""The command `maintain`: once, or again and again until a signal ends it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.catalog import Catalog
from lance_ns_async.cli.errors import Misuse, hint, shows_progress
from lance_ns_async.cli.options import CommonOptions, FormatOrSuffix, Out, Repeated, What, exit_after, require_tables
from lance_ns_async.cli.output import Format, format_for
from lance_ns_async.cli.parsing import parse_pairs
from lance_ns_async.cli.selecting import hint_at_missing
from lance_ns_async.cli.serving import Deadline
from lance_ns_async.operations.tiers import MAX_SMALL_FRAGMENTS

if TYPE_CHECKING:
    from lance_ns_async.fleet import MaintenancePlan, Report
    from lance_ns_async.fleet.maintenance.engine import Engine
    from lance_ns_async.fleet.maintenance.plan import TablePlan


def _plan_row(table: TablePlan) -> dict[str, Any]:
    later = {"compact", "index"} if table.is_left else ()
    return {**table.to_dict(), "steps": ", ".join(f"{it} (left)" if it in later else it for it in table.steps)}


_PLAN_COLUMNS: Sequence[str] = (
    *("id", "steps", "rows", "fragments", "small_fragments", "deleted_rows", "unindexed_rows"),
    *("old_versions", "removable_bytes", "cost", "gain", "requests"),
)
_REPORT_COLUMNS: Sequence[str] = (
    *("id", "outcome", "fragments_before", "fragments_after", "bytes_before", "bytes_after"),
    *("seconds", "reason"),
)


def maintain(
    on: CommonOptions,
    what: What,
    dry_run: Annotated[bool, Option("--dry-run", help="Change nothing; show the plan.")] = False,
    compact: Annotated[
        bool, Option("--compact/--no-compact", help="Merge small fragments and remove deleted rows.")
    ] = True,
    target_rows: Annotated[
        int | None, Option(min=1, help="Rows of a compacted fragment; by default 1,048,576.")
    ] = None,
    max_small_fragments: Annotated[
        int, Option(min=1, help="Number of small fragments that may stay in a table; 1 merges all.")
    ] = MAX_SMALL_FRAGMENTS,
    index: Annotated[bool, Option("--index/--no-index", help="Refresh indexes that lack rows.")] = True,
    cleanup: Annotated[
        bool, Option("--cleanup/--no-cleanup", help="Remove old versions without tags, and unused files.")
    ] = True,
    older_than: Annotated[
        str,
        Option(
            metavar="AGE", help="Minimum age of a version to remove; those of 10m stay without --delete-unverified."
        ),
    ] = "14d",
    retain: Annotated[int | None, Option(min=1, help="Number of newest versions that stay.")] = None,
    delete_unverified: Annotated[
        bool,
        Option(
            "--delete-unverified",
            help="Delete unused files of any age, not only after 7 days; safe only while nobody else writes.",
        ),
    ] = False,
    policies: Annotated[
        Path | None, Option(metavar="FILE", help="TOML file with options and priorities of tables, by patterns.")
    ] = None,
    budget: Annotated[
        str | None,
        Option(metavar="SIZE", help="Read and write so many bytes a run, e.g. 10GB, where they gain the most."),
    ] = None,
    max_time: Annotated[
        str | None, Option(metavar="TIME", help="Begin no table after this time, e.g. 20m; the largest gain is first.")
    ] = None,
    engine: Annotated[Literal["local", "spark"], Option(help="Work in this process, or with Spark.")] = "local",
    master: Annotated[str | None, Option(help="Master of Spark; by default this machine.")] = None,
    conf: Annotated[Repeated, Option(metavar="KEY=VALUE", help="Setting of Spark; may be repeated.")] = None,
    every: Annotated[
        str | None,
        Option(metavar="TIME", help="Go on until a signal ends it: look for changed tables in this time, e.g. 10m."),
    ] = None,
    state: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="With --every: keep the state there, a path or URI. Of all instances with the same, one works.",
        ),
    ] = None,
    no_lock: Annotated[
        bool, Option("--no-lock", help="With --every: no state; this is the only instance, and begins with all tables.")
    ] = False,
    all_every: Annotated[
        str, Option(metavar="TIME", help="With --every: look at all tables in this time, changed or not.")
    ] = "1d",
    listen: Annotated[
        str | None, Option(metavar="HOST:PORT", help="With --every: serve /health, /ready and /metrics there.")
    ] = None,
    grace: Annotated[
        float, Option(min=0, help="With --every: seconds that tables in progress get after a signal.")
    ] = 30,
    format: FormatOrSuffix = None,
    out: Out = None,
) -> None:
    """Compact tables, refresh their indexes, and remove old versions."""
    from lance_ns_async.fleet import CleanupOptions, CompactOptions, Report, sync

    merge = CompactOptions(target_rows=target_rows, max_small_fragments=max_small_fragments)
    age = None if older_than == "any" else older_than
    clean = CleanupOptions(older_than=age, retain_versions=retain, delete_unverified=delete_unverified)
    if dry_run and max_time is not None:
        raise Misuse("--max-time: not with --dry-run, which measures no time; use --budget")
    if (master or conf) and engine == "local":
        raise Misuse("--master and --conf: only with --engine spark")
    steps: dict[str, Any] = {"compact": compact and merge, "index": index, "cleanup": cleanup and clean}
    steps |= {"policies": policies, "budget": budget} | ({} if dry_run else {"max_time": max_time})
    catalog = on.require()
    if every is None and (state is not None or no_lock or listen is not None):
        raise Misuse("--state, --no-lock and --listen: only with --every")
    with ExitStack() as stack:
        if engine == "spark":
            steps["engine"] = _spark(stack, master, parse_pairs("--conf", conf))
        if every is not None:
            if dry_run or out is not None:
                raise Misuse("--every: not with --dry-run or --out")
            if format not in (None, Format.TABLE, Format.JSON):
                raise Misuse("--every: the reports are lines of text, or with -o json lines of JSON")
            if (state is None) is not no_lock:
                raise Misuse("--every: pass --state, a folder that all instances share, or --no-lock if there is one")
            steps |= {"every": every, "all_every": all_every, "state": state}
            asyncio.run(_maintain_forever(catalog, what, listen, grace, as_json=format is Format.JSON, steps=steps))
            return
        namespace = stack.enter_context(catalog.open())
        work: Any = sync.plan_maintenance if dry_run else sync.maintain
        result: Report | MaintenancePlan = work(namespace, what, progress=shows_progress(), **steps)
        hint_at_missing(namespace, what, result.problems)
    if isinstance(result, Report):
        columns, tables = _REPORT_COLUMNS, result.counters.get("tables", 0)
        rows = [row.to_dict() for row in result.rows if row.outcome != "unchanged"]
    else:
        columns, tables = _PLAN_COLUMNS, len(result.tables) + len(result.without_data)
        rows = [_plan_row(table) for table in result.tables if table.steps]
        rows += [{"id": str(row.id), "steps": row.outcome} for row in result.without_data]
    format = format_for(format, out)
    output.write(rows, columns, format, out, to_json=result.to_json, to_arrow=result.to_arrow)
    if dry_run and format is not Format.PARQUET:
        for row in result.problems:
            errors.say(f"{row.outcome}: {row.reason}")
    is_short = out is None and format not in (Format.JSON, Format.PARQUET)
    errors.summarize(result.line() if is_short else result, problems=result.problems)
    require_tables(result.problems, tables, what)
    exit_after(result.problems)


def _spark(stack: ExitStack, master: str | None, settings: Mapping[str, str]) -> Engine:
    """Returns the engine for Spark, whose session the stack ends."""
    from lance_ns_async.spark import SparkEngine
    from lance_ns_async.spark.local import local_spark

    config = {**settings, **({} if master is None else {"spark.master": master})}
    spark = local_spark("lance-ns maintain", config=config)
    stack.callback(spark.stop)
    return SparkEngine(spark, renew=True)


async def _maintain_forever(
    catalog: Catalog, what: What, listen: str | None, grace: float, *, as_json: bool, steps: Mapping[str, Any]
) -> None:
    """Maintains tables until a signal ends it; a second signal ends it at once."""
    import anyio

    from lance_ns_async.fleet import MaintenanceStatus, maintain_forever

    status, stop, task = MaintenanceStatus(), anyio.Event(), asyncio.current_task()
    assert task is not None

    def end() -> None:
        if stop.is_set():
            task.cancel()
            return
        stop.set()
        Deadline(grace, lambda: "tables")

    def show(report: Report) -> None:
        if as_json:
            print(json.dumps(report.to_dict(), ensure_ascii=False), flush=True)
        elif report.counts.keys() - {"unchanged", "off"}:
            print(report.line(), flush=True)
        for row in report.problems:
            errors.say(f"{row.outcome}: {row.reason}")

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end)
    async with AsyncExitStack() as stack:
        namespace = await stack.enter_async_context(catalog.open_async())
        if listen is not None:
            from lance_ns_async.gateway.maintenance import serving_status

            host, port = _address(listen)
            url = await stack.enter_async_context(serving_status(namespace, status, host=host, port=port))
            hint(f"status at {url}/ready and {url}/metrics")
        hint(f"maintaining {' '.join(what)}; Ctrl-C ends it")
        await maintain_forever(namespace, what, on_report=show, status=status, stop=stop, **steps)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Misuse(f"--listen {text}: use HOST:PORT, such as 127.0.0.1:9102")
    return host.strip("[]"), int(port)
