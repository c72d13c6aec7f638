"""The command `copy`: its second catalog, and its rules for ids."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.catalog import Catalog, choose, without_catalog
from lance_ns_async.cli.common import CommonOptions, DryRun, Journal, OutputFormat, exit_after, with_common_options
from lance_ns_async.cli.completing import complete_profile
from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.output import Format

COLUMNS = ("id", "target", "outcome", "reason")
_OWN, _TARGET = "LANCE_NS_", "LANCE_NS_TO_"


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


@with_common_options
def copy(
    on: CommonOptions,
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
    rename: Annotated[Literal["lower"] | None, typer.Option("--rename", help="Change the names to lower case.")] = None,
    mode: Annotated[
        Literal["create", "sync"], typer.Option("--mode", help="Only add tables, or also change those that differ.")
    ] = "create",
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
    dry_run: DryRun = False,
    journal: Journal = None,
    format: OutputFormat = Format.TABLE,
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
        typer.Option(
            "--to-profile",
            metavar="NAME",
            help="Name of a profile.",
            rich_help_panel="Target catalog",
            autocompletion=complete_profile,
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
            progress=errors.shows_progress(),
        )
    output.write_report(report, COLUMNS, format)
    exit_after(report.problems)
