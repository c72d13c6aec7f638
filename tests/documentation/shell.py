"""The reference page of the command line, made from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from lance_ns_async.cli.app import app

PAGE = "reference/shell.md"
_COMMON = ("Catalog", "Messages")  # The panels of the options that all commands have


def written() -> str:
    """Returns the page."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="lance-ns")
    panels: dict[str, list[Any]] = {}
    for command in group.commands.values():
        if not command.hidden:
            panels.setdefault(command.rich_help_panel, []).append(command)
    lines = [
        "# Commands",
        "",
        "`lance-ns COMMAND --help` shows the same. See [the command line](../cli.md) for examples and exit codes.",
        "",
        "## Options of all commands",
        "",
        "They stand before or after the name of the command. Commands with `--output` also have `--json`.",
        "",
        *_table([it for it in group.get_params(context) if it.rich_help_panel in _COMMON], context, "option"),
    ]
    for panel, commands in panels.items():
        lines += [f"## {panel}", ""]
        for command in commands:
            lines += _command(command, typer.Context(command, info_name=command.name, parent=context))
    return "\n".join(lines)


def _command(command: Any, context: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children:
        yield f"### {context.command_path.removeprefix('lance-ns ')}"
        yield ""
        usage = " ".join(command.collect_usage_pieces(context))
        yield from ("```text", f"{context.command_path} {usage}", "```", "")
        yield from (" ".join(part.split()) + "\n" for part in command.help.split("\n\n"))
        parameters = [it for it in command.get_params(context) if getattr(it, "rich_help_panel", None) not in _COMMON]
        arguments = [it for it in parameters if it.param_type_name == "argument"]
        options = [it for it in parameters if it not in arguments and it.name not in ("help", "as_json")]
        yield from _table(arguments, context, "argument")
        yield from _table(options, context, "option")
    for child in children.values():
        yield from _command(child, typer.Context(child, info_name=child.name, parent=context))


def _table(parameters: list[Any], context: Any, kind: str) -> Iterator[str]:
    if parameters:
        yield f"| {kind} | meaning |"
        yield "|---|---|"
        for parameter in parameters:
            name, text = parameter.get_help_record(context)
            name = name.partition(" ")[0] if kind == "argument" else name.replace(" range>", ">")
            yield f"| `{_escape(name, '|')}` | {_escape(text, '|*')} |"
        yield ""


def _escape(text: str, characters: str) -> str:
    return "".join(f"\\{it}" if it in characters else it for it in text)
