"""The commands of `lance-ns` and their options; other modules implement them."""

from __future__ import annotations

import logging
import sys
from contextlib import closing
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from lance_ns_async.cli import output
from lance_ns_async.cli.catalog import Config, Impl, Profile, Properties, require_catalog
from lance_ns_async.cli.errors import Code, ScriptGroup, say
from lance_ns_async.cli.output import Format, ObjectFormat

app: typer.Typer = typer.Typer(
    cls=ScriptGroup,
    help="List, describe, resolve, discover, copy, maintain and serve the Lance tables of a catalog.",
    epilog="Exit codes: 0 success, 1 some items failed, 2 usage, 3 not found, 4 denied, 5 "
    "unavailable, 70 internal error, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


class EngineName(StrEnum):
    """Process that compacts fragments."""

    LOCAL = "local"
    SPARK = "spark"


class OnError(StrEnum):
    """Behaviour for a table that cannot be resolved."""

    REPORT = "report"
    RAISE = "raise"


class CopyMode(StrEnum):
    """Whether a copy changes registrations that differ."""

    CREATE = "create"
    SYNC = "sync"


class Rename(StrEnum):
    """The change of names in a copy."""

    LOWER = "lower"


StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE|@FILE",
        help="Option of the storage, or a file of options; by default those of the catalog. May be repeated.",
    ),
]
Secrets = Annotated[bool, typer.Option("--show-secrets", help="Show storage options, including all secrets.")]


def _show_version(value: bool) -> None:
    if value:
        print(version("lance-ns-async"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print tracebacks of errors, and a line for each remote call.")
    ] = False,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Applies the options of all commands."""
    if debug:
        logging.basicConfig(format="%(relativeCreated)7.0f ms %(message)s", stream=sys.stderr)
        logging.getLogger("lance_ns_async").setLevel(logging.DEBUG)
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Code.USAGE)


@app.command("ls")
def list_(
    namespace: Annotated[str, typer.Argument(help="Namespace to list; the root by default.", show_default=False)] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Include all child namespaces.")] = False,
    namespaces: Annotated[bool, typer.Option("--namespaces", "-n", help="List namespaces instead of tables.")] = False,
    long: Annotated[bool, typer.Option("--long", "-l", help="Show the locations.")] = False,
    format: Annotated[Format, typer.Option("--output", "-o", help="Output format.")] = Format.PLAIN,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """List the tables or namespaces in a namespace, one per line, as they arrive."""
    from lance_ns_async.cli.listing import Listing

    with require_catalog(impl, properties, profile, config).open() as catalog:
        listing = Listing(catalog, namespace, recursive=recursive, namespaces=namespaces, long=long)
        # The listing is closed explicitly, because a partly read one would outlive its catalog.
        with closing(listing.rows()) as rows:
            count = output.write(rows, listing.columns, format, sys.stdout)
        if not count and not (recursive or namespaces):
            below = (
                "; use -r to include child namespaces, -n to list namespaces"
                if listing.holds_namespaces()
                else ", and no namespaces"
            )
            say(f"no tables in {namespace or 'the root'}{below}")
    if listing.failures:
        raise typer.Exit(Code.FAILURE)


@app.command()
def describe(
    table: Annotated[str, typer.Argument(help="Id of the table, e.g. prod.sales.orders.", show_default=False)],
    version: Annotated[int | None, typer.Option("--version", help="Describe this version; opens the dataset.")] = None,
    details: Annotated[
        bool, typer.Option("--details", "-d", help="Show schema and statistics; opens the dataset.")
    ] = False,
    show_secrets: Secrets = False,
    format: Annotated[ObjectFormat, typer.Option("--output", "-o", help="Output format.")] = ObjectFormat.TABLE,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Describe a table: its location, properties and storage options."""
    from lance_ns_async.cli.listing import describe

    with require_catalog(impl, properties, profile, config).open() as catalog:
        description = describe(catalog, table, version=version, details=details, show_secrets=show_secrets)
    output.write_object(description, format)


@app.command()
def resolve(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Ids and patterns of tables, e.g. prod.sales.* or prod.**.", show_default=False),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", "-f", metavar="FILE", help="Read ids and patterns from a file, one per line; - is stdin."
        ),
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--output", "-o", help="Output format; by default that of the suffix of --out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
    pin: Annotated[
        bool, typer.Option("--pin/--no-pin", help="Add versions and row counts; opens each dataset once.")
    ] = True,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="Report tables that fail, or stop at the first one.")
    ] = OnError.REPORT,
    show_secrets: Secrets = False,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Resolve many tables concurrently to their locations and versions."""
    from lance_ns_async.cli.resolving import format_for, read_targets, write
    from lance_ns_async.spark import LocationResolver

    targets = read_targets(what or (), from_file)
    catalog = require_catalog(impl, properties, profile, config)
    with LocationResolver.connect(catalog.impl, catalog.properties) as resolver:
        locations = resolver.prefetch(
            targets, pin_versions=pin, on_error="raise" if on_error is OnError.RAISE else "report"
        )
    write(locations, format_for(format, out), out, secrets=show_secrets)
    print(locations.report, file=sys.stderr)
    if locations.report.problems:
        raise typer.Exit(Code.FAILURE)


@app.command()
def audit(
    what: Annotated[list[str], typer.Argument(help="Ids and patterns of tables, e.g. prod.**.", show_default=False)],
    fix: Annotated[
        list[str] | None, typer.Option("--fix", metavar="KIND", help="Repair findings of this kind; may be repeated.")
    ] = None,
    data_under: Annotated[
        str | None,
        typer.Option("--data-under", metavar="URI", help="Also find tables below this folder that no table claims."),
    ] = None,
    storage_option: StorageOptions = None,
    format: Annotated[Format, typer.Option("--output", "-o", help="Output format.")] = Format.TABLE,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Compare the catalog with the storage; changes nothing without --fix, and never deletes data."""
    from lance_ns_async.cli import discovering, reports
    from lance_ns_async.fleet import sync

    options = discovering.parse_options(storage_option or ())
    with require_catalog(impl, properties, profile, config).open() as catalog:
        report = sync.audit(catalog, what, fix=fix or (), data_under=data_under, storage_options=options, progress=True)
    reports.write(report, reports.AUDIT_COLUMNS, format)
    if report.problems:
        raise typer.Exit(Code.FAILURE)


@app.command()
def find(
    what: Annotated[list[str], typer.Argument(help="Ids and patterns of tables, e.g. prod.**.", show_default=False)],
    column: Annotated[
        list[str] | None,
        typer.Option("--column", help="With this column: name, name:type or :type, e.g. 'vec:vector[768]'."),
    ] = None,
    min_rows: Annotated[int | None, typer.Option("--min-rows", help="Minimum number of rows.")] = None,
    max_rows: Annotated[int | None, typer.Option("--max-rows", help="Maximum number of rows.")] = None,
    min_size: Annotated[str | None, typer.Option("--min-size", help="Minimum size, e.g. 10GB.")] = None,
    max_size: Annotated[str | None, typer.Option("--max-size", help="Maximum size, e.g. 10GB.")] = None,
    min_versions: Annotated[int | None, typer.Option("--min-versions", help="Minimum number of versions.")] = None,
    older_than: Annotated[str | None, typer.Option("--older-than", help="Last write before, e.g. 30d.")] = None,
    newer_than: Annotated[str | None, typer.Option("--newer-than", help="Last write within, e.g. 12h.")] = None,
    index: Annotated[list[str] | None, typer.Option("--index", help="With an index of this column.")] = None,
    no_index: Annotated[list[str] | None, typer.Option("--no-index", help="Without an index of this column.")] = None,
    stale_index: Annotated[
        list[str] | None,
        typer.Option("--stale-index", help="With rows that an index of this column lacks; '*' is any column."),
    ] = None,
    property: Annotated[
        list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="With this property in the catalog.")
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", help="id, rows, size, versions, version or last_write; with - for descending.")
    ] = "id",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of tables.")] = None,
    format: Annotated[Format, typer.Option("--output", "-o", help="Output format.")] = Format.TABLE,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Find tables by columns, rows, size, age, indexes and properties; opens each dataset once."""
    from lance_ns_async.cli import reports
    from lance_ns_async.fleet import sync

    where = reports.conditions(
        columns=column,
        index=index,
        no_index=no_index,
        stale_index=stale_index,
        properties=property,
        min_rows=min_rows,
        max_rows=max_rows,
        min_size=min_size,
        max_size=max_size,
        min_versions=min_versions,
        older_than=older_than,
        newer_than=newer_than,
    )
    with require_catalog(impl, properties, profile, config).open() as catalog:
        report = sync.find(catalog, what, where, sort=sort, limit=limit, progress=True)
    reports.write(report, reports.FIND_COLUMNS, format)
    if report.problems:
        raise typer.Exit(Code.FAILURE)


@app.command()
def discover(
    uri: Annotated[str, typer.Argument(help="Folder or bucket, e.g. s3://bucket/data.", show_default=False)],
    into: Annotated[str, typer.Option("--into", help="Namespace for the tables; created if missing.")] = "",
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help="Only tables whose path matches; may be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="GLOB", help="Skip folders whose path matches; may be repeated."),
    ] = None,
    storage_option: StorageOptions = None,
    whole_catalog: Annotated[
        bool, typer.Option("--whole-catalog", help="Also compare with tables outside --into.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Register nothing; show what would be done.")] = False,
    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="FILE", help="Continue with this file if the run is stopped.")
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--output", "-o", help="Output format; by default that of the suffix of --out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Find the Lance tables below a folder or bucket, and register those that the catalog does not have."""
    from lance_ns_async.cli import discovering
    from lance_ns_async.cli.resolving import format_for

    report = discovering.discover(
        require_catalog(impl, properties, profile, config),
        uri,
        into=into,
        include=include or (),
        exclude=exclude or (),
        options=discovering.parse_options(storage_option or ()),
        whole_catalog=whole_catalog,
        dry_run=dry_run,
        journal=journal,
    )
    discovering.write(report, format_for(format, out), out)
    discovering.print_summary(report)
    if report.problems:
        raise typer.Exit(Code.FAILURE)


@app.command()
def copy(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Ids and patterns of tables, e.g. prod.**; all by default.", show_default=False),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="[SOURCE=]TARGET",
            help="Namespace for the copies, or a namespace and its replacement: hive=lake, hive= drops the level. "
            "May be repeated.",
        ),
    ] = None,
    rename: Annotated[Rename | None, typer.Option("--rename", help="Change the names to lower case.")] = None,
    mode: Annotated[
        CopyMode, typer.Option("--mode", help="Only add tables, or also change those that differ.")
    ] = CopyMode.CREATE,
    delete: Annotated[
        bool, typer.Option("--delete", help="With --mode sync: deregister what the source has no more; keeps data.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Hand tables whose versions the source's catalog commits over to the storage."
        ),
    ] = False,
    data: Annotated[bool, typer.Option("--data", help="Clone the data to the target's default locations.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Copy although the target cannot have some of the tables.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would be done.")] = False,
    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="FILE", help="Continue with this file if the run is stopped.")
    ] = None,
    format: Annotated[Format, typer.Option("--output", "-o", help="Output format.")] = Format.TABLE,
    to_impl: Annotated[
        str | None,
        typer.Option("--to-impl", metavar="NAME", help="Kind of the catalog.", rich_help_panel="Target catalog"),
    ] = None,
    to_property: Annotated[
        list[str] | None,
        typer.Option(
            "--to-property",
            metavar="KEY=VALUE",
            help="Property of the catalog; KEY=@FILE reads the value from a file.",
            rich_help_panel="Target catalog",
        ),
    ] = None,
    to_profile: Annotated[
        str | None,
        typer.Option("--to-profile", metavar="NAME", help="Name of a profile.", rich_help_panel="Target catalog"),
    ] = None,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Copy the registrations of tables to another catalog, or keep a copy in sync; the data stays where it is."""
    from lance_ns_async.cli import copying, reports

    report = copying.copy(
        require_catalog(impl, properties, profile, config),
        copying.choose_target(to_impl, to_property, to_profile, config),
        what or ["**"],
        to=copying.parse_rules(to or ()),
        rename=None if rename is None else "lower",
        mode="sync" if mode is CopyMode.SYNC else "create",
        delete=delete,
        take_over=take_over,
        data=data,
        partial=partial,
        dry_run=dry_run,
        journal=journal,
    )
    reports.write(report, reports.COPY_COLUMNS, format)
    if report.problems:
        raise typer.Exit(Code.FAILURE)


@app.command()
def maintain(
    what: Annotated[list[str], typer.Argument(help="Ids and patterns of tables, e.g. prod.**.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show the plan.")] = False,
    compact: Annotated[
        bool, typer.Option("--compact/--no-compact", help="Merge small fragments and remove deleted rows.")
    ] = True,
    target_rows: Annotated[
        int | None,
        typer.Option("--target-rows", min=1, help="Rows of a compacted fragment; by default 1,048,576."),
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
        EngineName, typer.Option("--engine", help="Compact in this process, or with Spark.")
    ] = EngineName.LOCAL,
    master: Annotated[
        str | None, typer.Option("--master", help="Master of Spark; by default this machine.", show_default=False)
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark; may be repeated.")
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--output", "-o", help="Output format; by default that of the suffix of --out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Compact tables, refresh their indexes, and remove old versions."""
    from lance_ns_async.cli import maintaining
    from lance_ns_async.cli.resolving import format_for

    arguments = maintaining.options(
        compact=compact,
        target_rows=target_rows,
        min_fragments=min_fragments,
        index=index,
        cleanup=cleanup,
        older_than=older_than,
        retain=retain,
        delete_unverified=delete_unverified,
    )
    catalog = require_catalog(impl, properties, profile, config)
    result = maintaining.run(
        catalog, what, arguments, dry_run=dry_run, engine=engine, master=master, settings=conf or ()
    )
    maintaining.write(result, format_for(format, out), out)
    if result.problems:
        raise typer.Exit(Code.FAILURE)


@app.command()
def serve(
    host: Annotated[
        str,
        typer.Option("--host", help="Address to listen on; an address that other machines can reach requires a token."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 selects a free one.")
    ] = 2333,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Read the token that clients must send; by default LANCE_NS_TOKEN, else a random one that is printed.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate chain, in PEM format."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            "--tls-key", metavar="FILE", help="Private key in PEM format, if it is not in the certificate's file."
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Accept this host name from a proxy on this machine; may be repeated."),
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", help="Delimiter of the names of an id in paths.")] = "$",
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Maximum bytes of rows in a request.")] = 2**30,
    max_answer_bytes: Annotated[
        int, typer.Option("--max-answer-bytes", min=1, help="Maximum bytes of rows in a response.")
    ] = 2**28,
    max_held_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-held-bytes",
            min=1,
            help="Maximum bytes of all requests and responses together; by default 4 times the largest limit of one.",
        ),
    ] = None,
    function: Annotated[
        list[str] | None,
        typer.Option("--function", help="Allow clients to call this SQL function, too; may be repeated."),
    ] = None,
    allow_location: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-location",
            metavar="PREFIX",
            help="Allow clients to register tables below this folder, too; may be repeated.",
        ),
    ] = None,
    max_connections: Annotated[
        int, typer.Option("--max-connections", min=1, help="Maximum connections from one address.")
    ] = 256,
    grace: Annotated[float, typer.Option("--grace", min=0, help="Seconds that pending requests get at shutdown.")] = 30,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Serve the catalog as a Lance REST Namespace for lancedb, pylance, Spark's connector and other clients."""
    from lance_ns_async.cli.serving import serve

    serve(
        require_catalog(impl, properties, profile, config),
        host=host,
        port=port,
        hosts=name or (),
        delimiter=delimiter,
        token_file=token_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        max_bytes=max_bytes,
        max_answer_bytes=max_answer_bytes,
        max_held_bytes=max_held_bytes,
        functions=function or (),
        allow_locations=allow_location or (),
        max_connections=max_connections,
        grace=grace,
    )
