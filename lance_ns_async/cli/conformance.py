"""The command `conformance`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.options import CommonOptions, OutputFormat, Repeated, exit_after
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.parsing import parse_pairs, read_text
from lance_ns_async.model import NamespaceId
from lance_ns_async.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_ns_async.conformance import Target

FEATURES = ("reading", "namespaces", "tables", "listing", "names", "at once", "rows", "versions", "columns")
"""Those of the kit, whose import takes a second."""


def conformance(
    on: CommonOptions,
    path: Annotated[
        str | None,
        Option(
            "--class",
            metavar="PATH",
            help="Test a LanceNamespace, e.g. package.module.Class; --property sets its arguments.",
        ),
    ] = None,
    server: Annotated[str | None, Option(metavar="URL", help="Test a server of the Lance REST protocol.")] = None,
    header: Annotated[
        Repeated,
        Option(metavar="NAME=VALUE", help="Header of each request to the server; NAME=@FILE reads it from a file."),
    ] = None,
    parent: Annotated[
        str, Option(metavar="ID", help="Namespace for the namespaces of the checks; else the root.")
    ] = "",
    read_only: Annotated[
        bool, Option("--read-only", help="Run only checks that change nothing, for a catalog in production.")
    ] = False,
    feature: Annotated[
        Repeated, Option(metavar="NAME", help=f"Run only these checks: {', '.join(FEATURES)}. May be repeated.")
    ] = None,
    report: Annotated[
        Path | None, Option(metavar="FOLDER", help="Write conformance.json: all checks and their calls.")
    ] = None,
    format: OutputFormat = Format.TABLE,
) -> None:
    """Test a catalog, a class or a server against the Lance Namespace spec; it exits with 1 if a check is wrong.

    Creates namespaces whose names begin with conformance_, and removes them.
    """
    try:
        from lance_ns_async.conformance import Result, run
    except ImportError as e:
        raise Misuse(f"conformance needs {e.name}: pip install 'lance-ns-async[conformance]'") from e
    if unknown := set(feature or ()) - set(FEATURES):
        raise Misuse(f"--feature {min(unknown)}: there is none; use {', '.join(FEATURES)}")
    target = _target(on, path, server, header or (), parent)
    with show_progress(errors.shows_progress(), "conformance") as progress:
        result = run(target, features=feature or (), read_only=read_only, progress=progress)
    if report is not None:
        try:
            result.write(report)
        except OSError as e:
            raise Misuse(f"--report {report}: {e.strerror}") from e
    is_for_people = format in (Format.TABLE, Format.PLAIN)
    rows = (
        {"feature": it.feature, "check": it.name, "result": str(it.result), "reason": it.reason}
        for it in result.checks
        if it.result is not Result.OK or not is_for_people
    )
    output.write(rows, ("feature", "check", "result", "reason"), format)
    for what in result.leftovers:
        errors.say(f"left behind: {what}")
    errors.summarize(result.line(), problems=not result.conforms)
    exit_after(not result.conforms)


def _target(on: CommonOptions, path: str | None, server: str | None, header: Sequence[str], parent: str) -> Target:
    from lance_ns_async import Namespace
    from lance_ns_async.conformance import Target, class_target, server_target

    above = NamespaceId(parent) if parent else ()
    if path is not None and server is not None:
        raise Misuse("--class and --server: use one of them")
    if server is not None:
        headers = parse_pairs("--header", header, "NAME=VALUE")
        headers = {
            name: read_text(Path(value[1:]), f"--header {name}={value}").strip() if value.startswith("@") else value
            for name, value in headers.items()
        }
        return server_target(server, headers, parent=above)
    if path is not None:
        return class_target(path, parse_pairs("--property", on.properties), parent=above)
    catalog = on.require()
    return Target(catalog.impl, lambda: Namespace.connect(catalog.impl, catalog.properties), above, takes_mappings=True)
