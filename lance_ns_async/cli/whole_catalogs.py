"""The commands on many tables: `resolve`, `find`, `watch`, `audit`, `discover` and `copy`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from lance_ns_async.cli import errors, output, secrets
from lance_ns_async.cli.catalog import Catalog, choose, without_catalog
from lance_ns_async.cli.errors import Misuse, hint, shows_progress
from lance_ns_async.cli.options import (
    CommonOptions,
    DryRun,
    FormatOrSuffix,
    Journal,
    Out,
    OutputFormat,
    Repeated,
    Secrets,
    StorageOptions,
    What,
    exit_after,
    require_tables,
)
from lance_ns_async.cli.output import Format, format_for
from lance_ns_async.cli.parsing import parse_lines, parse_pairs, parse_storage_options, read_text
from lance_ns_async.cli.selecting import complete_profile, hint_at_missing
from lance_ns_async.model import EXAMINE_EVERY, WATCH_EVERY, NamespaceId, TableId, is_pattern

if TYPE_CHECKING:
    from lance_ns_async.spark import Locations


def resolve(
    on: CommonOptions,
    what: Annotated[Repeated, Argument(help="Ids and patterns of tables, e.g. prod.sales.* or prod.**.")] = None,
    from_file: Annotated[
        Path | None,
        Option(
            "--from-file", "-f", metavar="FILE", help="Read ids and patterns from a file, one per line; - is stdin."
        ),
    ] = None,
    format: FormatOrSuffix = None,
    out: Out = None,
    pin: Annotated[bool, Option("--pin/--no-pin", help="Add versions and row counts; opens each dataset once.")] = True,
    on_error: Annotated[
        Literal["report", "raise"], Option(help="Report tables that fail, or stop at the first one.")
    ] = "report",
    show_secrets: Secrets = False,
) -> None:
    """Resolve many tables concurrently to their locations and versions."""
    from lance_ns_async.spark import LocationResolver

    targets = _read_targets(what or (), from_file)
    catalog = on.require()
    with LocationResolver.connect(catalog.impl, catalog.properties) as resolver:
        locations = resolver.prefetch(targets, pin_versions=pin, on_error=on_error)
    _write_locations(locations, format_for(format, out), out, secrets=show_secrets)
    errors.summarize(locations.report, problems=locations.report.problems)
    exit_after(locations.report.problems)


def _read_targets(arguments: Sequence[str], file: Path | None) -> Sequence[str | TableId]:
    """Returns the ids and patterns in the arguments and in the file; the file `-` is standard input."""
    texts = list(arguments)
    if file is not None:
        content = sys.stdin.read() if str(file) == "-" else read_text(file, str(file))
        texts += parse_lines(content)
    elif not texts:
        raise Misuse("no ids: pass ids or patterns, or --from-file")
    return [text if is_pattern(text) else TableId(text) for text in texts]


def _write_locations(locations: Locations, format: Format, file: Path | None, *, secrets: bool) -> None:
    table = locations.to_arrow(secrets=secrets)
    columns = table.column_names
    if format is Format.PLAIN:
        columns = ["id", "location"]
    elif format is Format.TABLE:
        # In this form, duplicate columns and columns without any value are omitted.
        columns = [name for name in columns if name != "names" and table[name].null_count < len(table)]
    rows = [] if format in (Format.JSON, Format.PARQUET) else table.to_pylist(maps_as_pydicts="strict")

    def to_json() -> str:
        # `Locations.from_json` can read this form, for a Spark job that starts later.
        return locations.to_json(secrets=secrets)

    output.write(rows, columns, format, file, to_json=to_json, to_arrow=lambda: table)


def watch(
    on: CommonOptions,
    what: What,
    since: Annotated[
        Path | None,
        Option("--state", metavar="FILE", help="Go on where the last run with this file ended, and keep it."),
    ] = None,
    once: Annotated[bool, Option("--once", help="Show what has changed since --state, and end.")] = False,
    existing: Annotated[bool, Option("--existing", help="At the first run, show the tables that exist, too.")] = False,
    no_versions: Annotated[bool, Option("--no-versions", help="Leave out new versions.")] = False,
    every: Annotated[float, Option(metavar="SECONDS", help="Time between two looks.")] = WATCH_EVERY,
    examine_every: Annotated[
        float, Option(metavar="SECONDS", help="Time in which every table is examined.")
    ] = EXAMINE_EVERY,
    json_lines: Annotated[bool, Option("--json", help="A line of JSON for each change.")] = False,
) -> None:
    """Show the tables that are created, dropped, renamed or replaced, and new versions, as it happens."""
    if once and since is None and not existing:
        raise Misuse("--once: pass --state FILE, or --existing; otherwise there is nothing to compare with")
    unreadable = False
    # A second run with the same file would show the same changes, and take the file back to an earlier look.
    with nullcontext() if since is None else secrets.lock(since, 0.0), on.require().open() as catalog:
        token = _read_state(since)
        if since is not None and token is None and not existing:
            token = catalog.watch_token(what, versions=not no_versions)
            secrets.write(since, token)
            hint(f"{since} is new: it begins now")
        if not once:
            hint(f"watching {' '.join(what)}; Ctrl-C ends it")
        for change in catalog.watch(
            what,
            since=token,
            existing=existing,
            versions=not no_versions,
            every=None if once else every,
            examine_every=examine_every,
        ):
            print(json.dumps(change.to_dict(), ensure_ascii=False) if json_lines else change, flush=True)
            unreadable = unreadable or change.error is not None
            if since is not None and change.is_last:
                # Only now that the reader of the lines has them.
                secrets.write(since, change.token)
    exit_after(once and unreadable)


def _read_state(file: Path | None) -> str | None:
    try:
        return None if file is None else file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        raise Misuse(f"{file}: {getattr(e, 'strerror', None) or e}") from e


def find(
    on: CommonOptions,
    what: What,
    column: Annotated[
        Repeated, Option(help="With this column: name, name:type or :type, e.g. 'vec:vector[768]'.")
    ] = None,
    min_rows: Annotated[int | None, Option(help="Minimum number of rows.")] = None,
    max_rows: Annotated[int | None, Option(help="Maximum number of rows.")] = None,
    min_size: Annotated[str | None, Option(help="Minimum size, e.g. 10GB.")] = None,
    max_size: Annotated[str | None, Option(help="Maximum size, e.g. 10GB.")] = None,
    min_versions: Annotated[int | None, Option(help="Minimum number of versions.")] = None,
    older_than: Annotated[str | None, Option(help="Last write before, e.g. 30d.")] = None,
    newer_than: Annotated[str | None, Option(help="Last write within, e.g. 12h.")] = None,
    index: Annotated[Repeated, Option(help="With an index of this column.")] = None,
    no_index: Annotated[Repeated, Option(help="Without an index of this column.")] = None,
    stale_index: Annotated[
        Repeated, Option(help="With rows that an index of this column lacks; '*' is any column.")
    ] = None,
    property: Annotated[
        Repeated, Option("--with-property", metavar="KEY=VALUE", help="With this property in the catalog.")
    ] = None,
    sort: Annotated[str, Option(help="id, rows, size, versions, version or last_write; with - for descending.")] = "id",
    limit: Annotated[int | None, Option(min=1, help="Maximum number of tables.")] = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Find tables by columns, rows, size, age, indexes and properties; opens each dataset once."""
    from lance_ns_async.fleet import Conditions, sync

    where = Conditions(
        columns=column or (),
        index=index or (),
        no_index=no_index or (),
        stale_index=stale_index or (),
        properties=parse_pairs("--with-property", property),
        min_rows=min_rows,
        max_rows=max_rows,
        min_size=min_size,
        max_size=max_size,
        min_versions=min_versions,
        older_than=older_than,
        newer_than=newer_than,
    )
    with on.require().open() as catalog:
        report = sync.find(catalog, what, where, sort=sort, limit=limit, progress=shows_progress())
        hint_at_missing(catalog, what, report.problems)
    columns = ("id", "outcome", "rows", "size", "versions", "last_write", "location", "reason")
    output.write_report(report, columns, format)
    require_tables(report.rows, report.counters.get("tables", 0), what)
    exit_after(report.problems)


FIXABLE = ("location-missing", "declared-only", "columns-differ", "unprotected", "not-external")
"""The kinds with a fix; the import of `audit_checks.KINDS` would take half a second."""


def audit(
    on: CommonOptions,
    what: What,
    fix: Annotated[
        Repeated, Option(metavar="KIND", help=f"Repair findings of this kind: {', '.join(FIXABLE)}. May be repeated.")
    ] = None,
    data_under: Annotated[
        str | None, Option(metavar="URI", help="Also find tables below this folder that no table claims.")
    ] = None,
    deep: Annotated[
        bool, Option("--deep", help="Also look for the files of each newest version, and read the ends of some.")
    ] = False,
    storage_option: StorageOptions = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Compare the catalog with the storage; never deletes data, and changes nothing without --fix.

    Reads only the manifests of tables; use --deep to find missing or damaged data files.
    """
    from lance_ns_async.fleet import sync

    with on.require().open() as catalog:
        report = sync.audit(
            catalog,
            what,
            fix=fix or (),
            data_under=data_under,
            deep=deep,
            storage_options=parse_storage_options(storage_option),
            progress=shows_progress(),
        )
        hint_at_missing(catalog, what, report.problems)
    output.write_report(report, ("id", "outcome", "severity", "reason", "fix", "location"), format)
    require_tables(report.rows, report.counters.get("tables", 0), what)
    exit_after(report.problems)


def discover(
    on: CommonOptions,
    uri: Annotated[str, Argument(help="Folder or bucket, e.g. s3://bucket/data.")],
    into: Annotated[str, Option(help="Namespace for the tables; created if missing.")] = "",
    include: Annotated[
        Repeated, Option(metavar="GLOB", help="Only tables whose path matches; may be repeated.")
    ] = None,
    exclude: Annotated[
        Repeated, Option(metavar="GLOB", help="Skip folders whose path matches; may be repeated.")
    ] = None,
    storage_option: StorageOptions = None,
    whole_catalog: Annotated[bool, Option("--whole-catalog", help="Also compare with tables outside --into.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Register nothing; show what would be done.")] = False,
    journal: Journal = None,
    format: FormatOrSuffix = None,
    out: Out = None,
) -> None:
    """Find the Lance tables below a folder or bucket, and register those that the catalog does not have."""
    from lance_ns_async.fleet import sync

    with on.require().open() as namespace:
        report = sync.discover(
            namespace,
            uri,
            into=NamespaceId(into),
            include=include or (),
            exclude=exclude or (),
            storage_options=parse_storage_options(storage_option),
            whole_catalog=whole_catalog,
            dry_run=dry_run,
            journal=journal,
            progress=shows_progress(),
        )
    format = format_for(format, out)
    columns = ("id", "outcome") if format is Format.PLAIN else ("id", "outcome", "location", "reason")
    output.write_report(report, columns, format, out, in_full=True)
    exit_after(report.problems)


_OWN, _TARGET = "LANCE_NS_", "LANCE_NS_TO_"
_TARGET_PANEL = "Target catalog"


def copy(
    on: CommonOptions,
    what: Annotated[Repeated, Argument(help="Ids and patterns of tables, e.g. prod.**; all by default.")] = None,
    to: Annotated[
        Repeated,
        Option(
            metavar="[SOURCE=]TARGET",
            help="Namespace for the copies, or a namespace and its replacement: hive=lake, hive= drops the level. "
            "May be repeated.",
        ),
    ] = None,
    rename: Annotated[Literal["lower"] | None, Option(help="Change the names to lower case.")] = None,
    mode: Annotated[
        Literal["create", "sync"], Option(help="Only add tables, or also change those that differ.")
    ] = "create",
    delete: Annotated[
        bool, Option("--delete", help="With --mode sync: deregister what the source has no more; keeps data.")
    ] = False,
    take_over: Annotated[
        bool, Option("--take-over", help="Hand tables whose versions the source's catalog commits over to the storage.")
    ] = False,
    data: Annotated[bool, Option("--data", help="Clone the data to the target's default locations.")] = False,
    partial: Annotated[
        bool, Option("--partial", help="Copy although the target cannot have some of the tables.")
    ] = False,
    dry_run: DryRun = False,
    journal: Journal = None,
    format: OutputFormat = Format.TABLE,
    to_impl: Annotated[
        str | None, Option(metavar="NAME", help="Kind of the catalog.", rich_help_panel=_TARGET_PANEL)
    ] = None,
    to_property: Annotated[
        Repeated,
        Option(
            metavar="KEY=VALUE",
            help="Property of the catalog; KEY=@FILE reads the value from a file.",
            rich_help_panel=_TARGET_PANEL,
        ),
    ] = None,
    to_profile: Annotated[
        str | None,
        Option(
            metavar="NAME", help="Name of a profile.", rich_help_panel=_TARGET_PANEL, autocompletion=complete_profile
        ),
    ] = None,
) -> None:
    """Copy the registrations of tables to another catalog, or keep a copy in sync; the data stays where it is."""
    from lance_ns_async.fleet import sync

    catalog = on.require()
    other = choose_target(to_impl, to_property, to_profile, on.config)
    with catalog.open() as source, other.open() as target:
        report = sync.copy(
            source,
            target,
            what or ["**"],
            to=parse_rules(to or ()),
            rename=rename,
            mode=mode,
            delete=delete,
            take_over=take_over,
            data=data,
            partial=partial,
            dry_run=dry_run,
            journal=journal,
            progress=shows_progress(),
        )
    output.write_report(report, ("id", "target", "outcome", "reason"), format)
    exit_after(report.problems)


def choose_target(
    impl: str | None,
    properties: Sequence[str] | None,
    profile: str | None,
    config: Path | None,
    environment: Mapping[str, str] = os.environ,
) -> Catalog:
    """Returns the catalog to copy to, from options and variables like those of the source with `TO` in their names."""
    own = {f"{_OWN}{key.removeprefix(_TARGET)}": value for key, value in environment.items() if key.startswith(_TARGET)}
    catalog = choose(impl, properties, profile, config, {**without_catalog(environment), **own})
    if catalog is None:
        raise Misuse(
            "no catalog to copy to: use --to-impl and --to-property KEY=VALUE, or --to-profile, or set "
            "LANCE_NS_TO_IMPL or LANCE_NS_TO_PROFILE"
        )
    return catalog


def parse_rules(texts: Sequence[str]) -> Mapping[str, str] | None:
    """Returns the rules for ids in the options `--to`: namespaces, or pairs `SOURCE=TARGET`; None without options."""
    rules: dict[str, str] = {}
    for text in texts:
        source, _, target = text.rpartition("=")
        if source in rules:
            raise Misuse(f"--to {text}: there is a rule for {source or 'all tables'} already")
        rules[source] = target
    return rules or None
