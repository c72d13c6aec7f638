"""Tables and pages that are made from code: catalogs, the reference of the command line, and tutorials."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer

from lance_ns_async import registry
from lance_ns_async.cli.app import app
from lance_ns_async.settings import Settings
from tests.documentation.pages import PAGES, Block, Page, catalog_page
from tests.support.reader import Reader, comparable, stand_ins

PAGE = "index.md"
CATALOGS = {impl: catalog_page(impl) for impl in registry.BACKENDS}
"""The page of each catalog, by the name of its backend."""

_BLOCK = re.compile(r"(<!-- catalogs -->\n).*(<!-- /catalogs -->)", re.DOTALL)


def table() -> str:
    lines = ["| catalog | connect with | tested on |", "|---|---|---|"]
    for page in dict.fromkeys(CATALOGS.values()):
        impls = ", ".join(f'`"{impl}"`' for impl, its_page in CATALOGS.items() if its_page == page)
        name = ", ".join(filter(None, [f"[{page.title}]({page.name})", page.head.get("note")]))
        lines.append(f"| {name} | {impls} | {page.head['tested_on']} |")
    return "\n".join([*lines, "", ""])


def written() -> str:
    return _BLOCK.sub(lambda block: f"{block[1]}{table()}{block[2]}", Page(PAGE).text)


def check_properties(page: Page, settings: type[Settings], required: Mapping[str, str]) -> None:
    """Asserts that a catalog's page contains every property with its default.

    Args:
        page: The page of the catalog.
        settings: Its properties.
        required: Values of the properties that every connection needs.
    """
    written = page.properties()
    assert set(written) == {f"{field}.*" if field in settings.prefixes else field for field in settings.model_fields}
    for field, default in written.items():
        _check_default(settings, required, field.removesuffix(".*"), default)


def _check_default(settings: type[Settings], required: Mapping[str, str], name: str, written: str) -> None:
    field = settings.model_fields[name]
    match written:
        case "required":
            assert field.is_required(), name
        case _ if name == "max_in_flight":
            # It is less where a process may open few files.
            assert field.default <= int(written.strip("`"))
        case "none":
            assert field.default in (None, "", {}), name
        case _:
            parsed = settings.parse({**required, name: written.strip("`")})
            assert getattr(parsed, name) == pytest.approx(field.default), name


FOLDER = PAGES / "tutorials"
_VARYING = re.compile(
    r"\b[\d.,]+ ?(µs|ms|s|bytes|kB)\b|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*(Z|[+-]\d\d:\d\d)?|\btmp\w{8}\b"
)
"""Durations, sizes of files, which contain times, times, and temporary folders."""

Outputs = Sequence[Mapping[str, Any]]  # What is below a cell, in the format of notebooks


@dataclass(frozen=True)
class Notebook:
    """A notebook, by the name of its file."""

    name: str

    @property
    def path(self) -> Path:
        return FOLDER / self.name

    @cached_property
    def content(self) -> dict[str, Any]:
        return dict(json.loads(self.path.read_text(encoding="utf-8")))

    @property
    def cells(self) -> Sequence[dict[str, Any]]:
        return [cell for cell in self.content["cells"] if cell["cell_type"] == "code"]

    def blocks(self) -> Iterator[Block]:
        """The code of the cells, as blocks of a page."""
        for cell in self.cells:
            yield Block("python", None, "".join(cell["source"]), 1, None, None)

    async def run(self) -> Sequence[Outputs]:
        """Returns the outputs of the cells, run in order in an empty folder."""
        with TemporaryDirectory() as folder, chdir(folder), stand_ins(self.blocks()) as servers:
            reader = Reader(self, {"/home/you": folder, **servers})
            return [_outputs(*await reader.displayed(block)) for block in self.blocks()]

    async def update(self) -> None:
        """Runs the cells, and stores outputs that differ in more than times and random names."""
        for count, (cell, outputs) in enumerate(zip(self.cells, await self.run(), strict=True), 1):
            cell["execution_count"] = count
            if without_varying(cell["outputs"]) != without_varying(outputs):
                cell["outputs"] = [_numbered(it, count) for it in outputs]
        text = json.dumps(self.content, indent=1, ensure_ascii=False)
        self.path.write_text(f"{text}\n", encoding="utf-8")


def notebooks() -> list[Notebook]:
    return [Notebook(path.name) for path in sorted(FOLDER.glob("*.ipynb"))]


def without_varying(outputs: Outputs) -> list[Mapping[str, list[str]]]:
    """Returns the lines of outputs by their type, without what differs in each run."""
    result: list[Mapping[str, list[str]]] = []
    for output in outputs:
        is_value = output["output_type"] == "execute_result"
        texts = output["data"] if is_value else {output["name"]: output["text"]}
        # The rows of a report are in the order in which the tables are finished.
        order = sorted if is_value else list
        result.append({kind: order(_lines("".join(text))) for kind, text in texts.items()})
    return result


def _lines(text: str) -> list[str]:
    return re.split("\n|(?<=</tr>)", _VARYING.sub("...", comparable(text)))


def _outputs(printed: str, value: Mapping[str, str]) -> Outputs:
    outputs: list[Mapping[str, Any]] = []
    if printed:
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if value:
        data = {kind: text.splitlines(keepends=True) for kind, text in value.items()}
        outputs.append({"data": data, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _numbered(output: Mapping[str, Any], count: int) -> Mapping[str, Any]:
    return {**output, "execution_count": count} if output["output_type"] == "execute_result" else output


_SHELL = {"Look": "shell", "Change": "shell-change", "Whole catalogs": "shell-catalogs", "Set up": "shell-setup"}
"""The pages of the reference, by the panels of commands."""

_COMMON = ("Catalog", "Messages")  # The panels of the options that all commands have


def shell_pages() -> Mapping[str, str]:
    """Returns the reference of the command line: the texts of its pages by their names."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="lance-ns")
    pages = {
        panel: [
            f"# Commands: {panel.lower()}",
            "",
            "`lance-ns COMMAND --help` shows the same. See [the command line](../cli.md) for examples and exit codes.",
            "",
        ]
        for panel in _SHELL
    }
    pages["Look"] += [
        "The other commands: [change](shell-change.md), [whole catalogs](shell-catalogs.md), [set up](shell-setup.md).",
        "",
        "## Options of all commands",
        "",
        "They stand before or after the name of the command. Commands with `--output` also have `--json`.",
        "",
        *_shell_table([it for it in group.get_params(context) if it.rich_help_panel in _COMMON], context, "option"),
    ]
    for command in group.commands.values():
        if not command.hidden:
            child = typer.Context(command, info_name=command.name, parent=context)
            pages[command.rich_help_panel] += _command(command, child)
    return {f"reference/{_SHELL[panel]}.md": "\n".join(lines) for panel, lines in pages.items()}


def _command(command: Any, context: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children:
        yield f"## {context.command_path.removeprefix('lance-ns ')}"
        yield ""
        usage = " ".join(command.collect_usage_pieces(context))
        yield from ("```text", f"{context.command_path} {usage}", "```", "")
        yield from (" ".join(part.split()) + "\n" for part in command.help.split("\n\n"))
        yield command.epilog.replace("Example: ", "Example: `") + "`\n"
        parameters = [it for it in command.get_params(context) if getattr(it, "rich_help_panel", None) not in _COMMON]
        arguments = [it for it in parameters if it.param_type_name == "argument"]
        options = [it for it in parameters if it not in arguments and it.name not in ("help", "as_json")]
        yield from _shell_table(arguments, context, "argument")
        yield from _shell_table(options, context, "option")
    for child in children.values():
        yield from _command(child, typer.Context(child, info_name=child.name, parent=context))


def _shell_table(parameters: list[Any], context: Any, kind: str) -> Iterator[str]:
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
