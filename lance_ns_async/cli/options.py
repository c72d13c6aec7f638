"""Options that all commands have, before or after the name of the command, and those that several have."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from lance_ns_async.cli import errors
from lance_ns_async.cli.catalog import Catalog, require
from lance_ns_async.cli.errors import DEBUG, Code, Misuse, say
from lance_ns_async.cli.output import Format
from lance_ns_async.cli.selecting import complete_namespace, complete_profile, complete_table

IMPLS = ("dir", "glue", "hive2", "hive3", "iceberg", "lakekeeper", "polaris", "rest", "unity")

_PANEL = "Catalog"
_SHOWN = "Messages"

Repeated = list[str] | None
"""The type of an option that may be repeated."""


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The options of all commands, of which those after the name of a command override those before it."""

    impl: Annotated[
        str | None,
        Option(
            "--impl",
            "-i",
            metavar="NAME",
            help=f"Kind of the catalog: {', '.join(IMPLS[:-1])} or {IMPLS[-1]}.",
            rich_help_panel=_PANEL,
            autocompletion=lambda: list(IMPLS),
        ),
    ] = None
    properties: Annotated[
        Repeated,
        Option(
            "--property",
            "-p",
            metavar="KEY=VALUE",
            help="Property of the catalog; KEY=@FILE reads the value from a file. Other users of this machine can see "
            "command lines: pass secrets by file, environment or profile.",
            rich_help_panel=_PANEL,
        ),
    ] = field(default=None, repr=False)
    profile: Annotated[
        str | None,
        Option(
            "--profile",
            "-P",
            metavar="NAME",
            help="Name of a profile: see lance-ns profile --help.",
            rich_help_panel=_PANEL,
            autocompletion=complete_profile,
        ),
    ] = None
    config: Annotated[
        Path | None, Option(metavar="FILE", help="TOML file with the profiles.", rich_help_panel=_PANEL)
    ] = None
    quiet: Annotated[bool, Option("--quiet", "-q", help="Show only results and errors.", rich_help_panel=_SHOWN)] = (
        False
    )
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Show a line for each remote call.", rich_help_panel=_SHOWN)
    ] = False
    debug: Annotated[
        bool,
        Option(
            "--debug", help="Show a line for each remote call, and the traceback of an error.", rich_help_panel=_SHOWN
        ),
    ] = False

    def after(self, before: CommonOptions) -> CommonOptions:
        """Returns these options together with those before the command."""
        values = {it.name: getattr(self, it.name) or getattr(before, it.name) for it in fields(self)}
        values["properties"] = [*(before.properties or ()), *(self.properties or ())]
        return CommonOptions(**values)

    def require(self) -> Catalog:
        """Returns the catalog; raises `Misuse` if neither the options, the environment nor a profile name one."""
        return require(self.impl, self.properties, self.profile, self.config)

    def apply(self, context: typer.Context) -> None:
        """Sets how much is shown."""
        long = ((it.name, opt) for it in context.command.params for opt in it.opts if opt.startswith("--"))
        errors.set_up(quiet=self.quiet, options={str(name): option for name, option in long})
        context.meta[DEBUG] = self.debug
        if self.verbose or self.debug:
            logging.basicConfig(format="%(relativeCreated)7.0f ms %(message)s", stream=sys.stderr)
            logging.getLogger("lance_ns_async").setLevel(logging.DEBUG)


def with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with the options of all commands; it gets them as its first argument.

    A command with an output format also gets `--json`.
    """
    _, *own = signature(command, eval_str=True).parameters.values()
    declared = list(signature(CommonOptions, eval_str=True).parameters.values())
    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    json_type = Annotated[bool, Option("--json", help="The same as --output json.")]
    as_json = Parameter("as_json", Parameter.KEYWORD_ONLY, annotation=json_type, default=False)
    defaults = {it.name: it.default for it in own}
    json_option = [as_json] if "format" in defaults else []

    @wraps(command)
    def run(*, context: typer.Context, as_json: bool = False, **arguments: Any) -> None:
        options = CommonOptions(**{it.name: arguments.pop(it.name) for it in declared})
        options = options.after(context.obj or CommonOptions())
        options.apply(context)
        if as_json:
            if arguments["format"] not in (defaults["format"], Format.JSON):
                raise Misuse("--json and --output: use one of them")
            arguments["format"] = Format.JSON
        if "context" in defaults:
            arguments["context"] = context
        command(options, **arguments)

    parameters = [*([] if "context" in defaults else [context]), *own, *json_option, *declared]
    run.__annotations__ = {it.name: it.annotation for it in parameters}
    run.__signature__ = Signature([it.replace(kind=Parameter.KEYWORD_ONLY) for it in parameters])  # type: ignore[attr-defined]
    return run


What = Annotated[list[str], Argument(help="Ids and patterns of tables, e.g. 'prod.**'.", autocompletion=complete_table)]
NamespaceName = Annotated[
    str, Argument(help="Id of the namespace, e.g. prod.sales.", autocompletion=complete_namespace)
]
TableName = Annotated[
    str,
    Argument(
        help="Id of the table, e.g. prod.sales.orders, or a pattern that matches one.", autocompletion=complete_table
    ),
]
NewTable = Annotated[str, Argument(help="Id of the new table, e.g. prod.sales.orders.")]
TableNames = Annotated[
    list[str],
    Argument(
        help="Ids and patterns of tables, e.g. prod.sales.orders or 'prod.sales.*'.", autocompletion=complete_table
    ),
]
Version = Annotated[str | None, Option("--version", help="Number of a version, or a tag; the latest by default.")]
Branch = Annotated[str | None, Option("--branch", metavar="NAME", help="Branch of the table; main by default.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, Option("--dry-run", help="Change nothing; show what would be done.")]
OutputFormat = Annotated[Format, Option("--output", "-o", help="Output format.")]
ChangeFormat = Annotated[Format | None, Option("--output", "-o", help="Output format; by default a sentence.")]
FormatOrSuffix = Annotated[
    Format | None, Option("--output", "-o", help="Output format; by default that of the suffix of --out.")
]
Out = Annotated[Path | None, Option("--out", metavar="FILE", help="Write to a file instead of stdout.")]
Journal = Annotated[
    Path | None, Option("--journal", metavar="FILE", help="Continue with this file if the run is stopped.")
]
StorageOptions = Annotated[
    Repeated,
    Option(
        "--storage-option",
        metavar="KEY=VALUE|@FILE",
        help="Option of the storage, or a file of options; by default those of the catalog. May be repeated.",
    ),
]
Secrets = Annotated[bool, Option("--show-secrets", help="Show storage options, including all secrets.")]


def exit_after(problems: object) -> None:
    """Ends the command with the exit code of a failure if there are problems."""
    if problems:
        raise typer.Exit(Code.FAILURE)


def require_tables(rows: object, tables: int, what: Iterable[str]) -> None:
    """Ends the command if ids and patterns have matched nothing, because a report without rows looks like success."""
    if not rows and not tables:
        say(f"no table matches {' '.join(map(repr, what))}; '**' also matches the tables of child namespaces")
        raise typer.Exit(Code.NOT_FOUND)
