"""The reference: each method is in one group of its page, and each argument is described."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import lance_namespace as spec
import pytest
from typer.testing import CliRunner

from lance_ns_async import AsyncNamespace, Namespace
from lance_ns_async.cli.app import app
from tests.documentation.catalogs import Notebook, notebooks, without_varying
from tests.documentation.pages import CODE_COLUMNS, Page
from tests.support.budget import thorough
from tests.support.spark import SPARK

CLIENT = ("client", "many", "tables", "rows", "indexes", "versions")
PAGES = (*CLIENT, *"sync fleet maintenance spark spark-views policy errors model results testing".split())
ONCE = {"self", "cls", "fields"}  # The arguments that the class describes once
COMMON = {"id", "identity", "context"}  # The fields of requests that the class describes once
_DIRECTIVE = re.compile(r"^(?:#+ )?::: (\S+)$", re.MULTILINE)
_ARGUMENTS = re.compile(r"^Args:\n((?:    .*\n?|\n)+)", re.MULTILINE)
_ARGUMENT = re.compile(r"^    \*{0,2}(\w+): \S", re.MULTILINE)


def documented(page: str) -> list[str]:
    """Returns the paths of the objects on a page of the reference, in order."""
    return _DIRECTIVE.findall(Page(f"reference/{page}.md").text)


def functions(owner: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """All public functions of a documented object: itself, or those of a module or a class."""
    if inspect.isfunction(owner):
        yield owner.__qualname__, owner
    elif isinstance(owner, ModuleType):
        for name, value in vars(owner).items():
            if not name.startswith("_") and getattr(value, "__module__", None) == owner.__name__:
                yield from functions(value)
    elif inspect.isclass(owner):
        for name in dir(owner):
            member = inspect.getattr_static(owner, name)
            member = inspect.unwrap(getattr(member, "__func__", member))
            is_ours = inspect.isfunction(member) and member.__module__.startswith("lance_ns_async")
            if is_ours and not name.startswith("_"):
                yield f"{owner.__name__}.{name}", member


def needs_only_id(function: Callable[..., Any]) -> bool:
    """Returns whether the request of an operation has no field but the id, and those that no operation needs."""
    model = re.match(r"spec\.(\w+)", inspect.signature(function).parameters["request"].annotation)
    return model is not None and set(getattr(spec, model[1]).model_fields) <= COMMON


def undescribed(function: Callable[..., Any]) -> list[str]:
    """Returns the arguments that the docstring does not describe."""
    arguments = _ARGUMENTS.search(inspect.getdoc(function) or "")
    described = set(_ARGUMENT.findall(arguments[1])) if arguments else set()
    missing = [name for name in inspect.signature(function).parameters if name not in ONCE | described]
    return [name for name in missing if name != "request" or not needs_only_id(function)]


def test_each_method_is_in_one_group() -> None:
    prefix = "lance_ns_async.AsyncNamespace."
    listed = [path.removeprefix(prefix) for page in CLIENT for path in documented(page) if path.startswith(prefix)]
    assert sorted(listed) == [name for name in dir(AsyncNamespace) if not name.startswith("_")]
    # The page of the sync class has what the async one lacks.
    own = {path.rpartition(".")[2] for path in documented("sync")}
    assert own >= {name for name in dir(Namespace) if not name.startswith("_")} - {*listed}


@pytest.mark.parametrize("page", PAGES)
def test_each_argument_is_described(page: str) -> None:
    documents = [it for path in documented(page) for it in functions(pkgutil.resolve_name(path))]
    assert documents
    assert [(name, undescribed(it)) for name, it in documents if undescribed(it)] == []


ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """Returns the code block after the marker of that name."""
    result = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", README, re.DOTALL)
    assert result is not None, f"README.md has no block {name!r}"
    return result[1]


def run(directory: Path, *names: str) -> list[str]:
    """Returns the output of each block, run one after another in the same directory."""
    printed = []
    with chdir(directory):
        for name in names:
            with redirect_stdout(StringIO()) as output:
                exec(block(name), {"__name__": "__main__"})
            printed.append(output.getvalue())
    return printed


def test_async_and_sync_and_sql(tmp_path: Path) -> None:
    first, second, asked = run(tmp_path, "async", "sync", "sql")
    assert first.startswith("200 found; Table not found: sales$nobody")
    assert second.startswith("200 tables\n3 rows at ")
    assert asked.startswith("SqlResult(3 rows, 2 columns of 200 tables)")


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
@pytest.mark.usefixtures("shared_spark")
def test_spark(tmp_path: Path) -> None:
    *_, shown = run(tmp_path, "async", "sync", "spark")
    assert "200/200" in shown
    assert "|sales$orders_000|" in shown and "16.75" in shown


def test_ci_runs_the_test_command() -> None:
    """The script that CI runs finds its command in the README."""
    assert block("tests").strip().endswith("-m nox")
    assert "<!-- tests -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


FOLDER = Path(__file__).parents[2] / "docs" / "deploy"


def commands() -> Iterator[list[str]]:
    """Yields the arguments of each `lance-ns serve` in the files."""
    for name, start in (("compose.yaml", r" +command: "), ("Dockerfile", "CMD ")):
        (line,) = re.findall(rf"^{start}(\[[^]]*\])$", (FOLDER / name).read_text(), re.MULTILINE)
        yield json.loads(line)
    (text,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", (FOLDER / "lance-ns.service").read_text(), re.MULTILINE)
    program, *arguments = shlex.split(text.replace("\\\n", ""))
    assert program.endswith("/bin/lance-ns")
    yield arguments


@pytest.mark.parametrize("arguments", [*commands()], ids=["compose", "image", "systemd"])
def test_the_options_exist(arguments: list[str]) -> None:
    assert arguments[0] == "serve"
    shown = CliRunner().invoke(app, ["serve", "--help"]).output
    assert all(it in shown for it in arguments if it.startswith("--"))


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_the_files_fit_on_their_page(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if len(line) > CODE_COLUMNS] == []


MARKS: dict[str, Any] = {
    # The pages spark.md and spark-writes.md show the same calls.
    "spark.ipynb": [*SPARK, thorough],
    # The other sessions have no pandas.
    "asyncio.ipynb": pytest.mark.integration,
}


@pytest.mark.parametrize("notebook", [pytest.param(it, id=it.name, marks=MARKS.get(it.name, ())) for it in notebooks()])
async def test_cells_display_what_is_stored(notebook: Notebook) -> None:
    for cell, outputs in zip(notebook.cells, await notebook.run(), strict=True):
        stored, source = without_varying(cell["outputs"]), "".join(cell["source"])
        assert without_varying(outputs) == stored, f"{source}\nrun: python -m tests.documentation"


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda it: it.name)
def test_a_notebook_is_a_story(notebook: Notebook) -> None:
    cells = notebook.content["cells"]
    assert 8 <= len(cells) <= 15
    assert cells[0]["cell_type"] == cells[-1]["cell_type"] == "markdown"
    assert [cell["execution_count"] for cell in notebook.cells] == [*range(1, len(notebook.cells) + 1)]


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda it: it.name)
def test_code_fits_on_the_page(notebook: Notebook) -> None:
    lines = [line for block in notebook.blocks() for line in block.source.splitlines()]
    assert [line for line in lines if len(line) > CODE_COLUMNS] == []
