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
from lance_ns_async.cli.catalog import Config, Impl, Profile, Properties, choose, chosen
from lance_ns_async.cli.errors import Code, ScriptGroup, say
from lance_ns_async.cli.output import Format, ObjectFormat

app = typer.Typer(
    cls=ScriptGroup,
    help="Lists, describes, resolves and serves the Lance tables of a catalog.",
    epilog="Exit codes: 0 fine, 1 some failed, 2 usage, 3 not found, 4 denied, 5 unavailable, 70 internal, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


class OnError(StrEnum):
    """Behaviour for a table that cannot be resolved."""

    REPORT = "report"
    RAISE = "raise"


Secrets = Annotated[bool, typer.Option("--show-secrets", help="Storage options too, with all secrets in them.")]


def _show_version(asked: bool) -> None:
    if asked:
        print(version("lance-ns-async"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks of errors, and a line a remote call.")] = False,
    show_version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
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
    namespace: Annotated[str, typer.Argument(help="Where to look; the root if left out.", show_default=False)] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Everything below, too.")] = False,
    namespaces: Annotated[bool, typer.Option("--namespaces", "-n", help="Namespaces instead of tables.")] = False,
    long: Annotated[bool, typer.Option("--long", "-l", help="With locations.")] = False,
    format: Annotated[Format, typer.Option("--output", "-o")] = Format.PLAIN,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Lists tables or namespaces, one per line, as they arrive."""
    from lance_ns_async.cli.listing import Listing

    with chosen(impl, properties, profile, config).open() as catalog:
        listing = Listing(catalog, namespace, recursive=recursive, namespaces=namespaces, long=long)
        # The listing is closed explicitly, because a partly read one would outlive its catalog.
        with closing(listing.rows()) as rows:
            count = output.write(rows, listing.columns, format, sys.stdout)
        if not count and not (recursive or namespaces):
            below = (
                "; -r looks below it, -n lists its namespaces" if listing.holds_namespaces() else ", and no namespaces"
            )
            say(f"no tables in {namespace or 'the root'}{below}")
    if listing.failed:
        raise typer.Exit(Code.FAILED)


@app.command()
def describe(
    table: Annotated[str, typer.Argument(help="Its id, e.g. prod.sales.orders.", show_default=False)],
    version: Annotated[int | None, typer.Option("--version", help="As of that version; opens the dataset.")] = None,
    details: Annotated[bool, typer.Option("--details", "-d", help="Schema and statistics; opens the dataset.")] = False,
    show_secrets: Secrets = False,
    format: Annotated[ObjectFormat, typer.Option("--output", "-o")] = ObjectFormat.TABLE,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Describes a table: where it is and how to read it."""
    from lance_ns_async.cli.describing import describe

    with chosen(impl, properties, profile, config).open() as catalog:
        found = describe(catalog, table, version=version, details=details, show_secrets=show_secrets)
    output.write_object(found, format)


@app.command()
def resolve(
    what: Annotated[
        list[str] | None, typer.Argument(help="Ids and patterns, e.g. prod.sales.* or prod.**.", show_default=False)
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", "-f", metavar="FILE", help="Ids and patterns, one a line; - is stdin.")
    ] = None,
    format: Annotated[Format | None, typer.Option("--output", "-o", help="Else by the name of --out.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write there, not to stdout.")] = None,
    pin: Annotated[bool, typer.Option("--pin/--no-pin", help="Versions and rows; opens each dataset once.")] = True,
    on_error: Annotated[
        OnError, typer.Option("--on-error", help="Whether one that fails ends it all.")
    ] = OnError.REPORT,
    show_secrets: Secrets = False,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Resolves many tables at once to their locations and versions."""
    from lance_ns_async.cli.resolving import format_for, read_selection, write
    from lance_ns_async.spark import LocationResolver

    wanted = read_selection(what or (), from_file)
    catalog = chosen(impl, properties, profile, config)
    with LocationResolver.connect(catalog.impl, catalog.properties) as resolver:
        locations = resolver.prefetch(
            wanted, pin_versions=pin, on_error="raise" if on_error is OnError.RAISE else "report"
        )
    write(locations, format_for(format, out), out, secrets=show_secrets)
    print(locations.report, file=sys.stderr)
    if locations.report.problems:
        raise typer.Exit(Code.FAILED)


@app.command()
def serve(
    host: Annotated[str, typer.Option("--host", help="Any but this machine's own needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 2333,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="What clients must show; else LANCE_NS_TOKEN, else a random one that is printed.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="PEM, the chain; serves HTTPS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM, if it is not with the certificate.")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A name that a proxy on this machine asks for it by.")
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", help="Joins an id's names in paths.")] = "$",
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Bytes of rows a request may have.")] = 2**30,
    max_answer_bytes: Annotated[
        int, typer.Option("--max-answer-bytes", min=1, help="Bytes of rows an answer may have.")
    ] = 2**28,
    max_held_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-held-bytes", min=1, help="Bytes of all requests and answers at once; else 4 times the largest."
        ),
    ] = None,
    function: Annotated[
        list[str] | None, typer.Option("--function", help="An SQL function that clients may call besides the usual.")
    ] = None,
    grace: Annotated[float, typer.Option("--grace", min=0, help="Seconds that requests have when it ends.")] = 30,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Serves the catalog as a Lance REST Namespace for lancedb, pylance, Spark's connector and other clients."""
    from lance_ns_async.cli.serving import serve

    serve(
        chosen(impl, properties, profile, config),
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
        grace=grace,
    )


@app.command()
def demo(
    count: Annotated[int, typer.Option("--tables", min=1, help="How many tables.")] = 1000,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows in each.")] = 300,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", help="Where they go; made if missing. Some catalogs want two levels, as in lake.demo."
        ),
    ] = "demo",
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where the embedded catalog is; else the user's cache.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Drops the tables of earlier runs first.")] = False,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Reads them with Spark, too.")] = True,
    impl: Impl = None,
    properties: Properties = None,
    profile: Profile = None,
    config: Config = None,
) -> None:
    """Creates many small tables, resolves them concurrently and reads them all in one Spark job.

    Uses an embedded catalog, unless another is chosen. A later run reuses existing tables.
    """
    from lance_ns_async.cli import demo
    from lance_ns_async.model import NamespaceId

    catalog = demo.place(choose(impl, properties, profile, config), directory)
    summary = demo.run(catalog, NamespaceId.parse(namespace), count=count, rows=rows, fresh=fresh, spark=spark)
    summary.show()
    if not summary.is_right:
        raise typer.Exit(Code.INTERNAL)
