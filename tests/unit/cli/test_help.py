"""Help, verbosity and completion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lance_ns_async.cli.errors import Code
from lance_ns_async.cli.options import IMPLS
from lance_ns_async.cli.whole_catalogs import FIXABLE
from lance_ns_async.fleet.audit_checks import KINDS
from lance_ns_async.registry import BACKENDS
from tests.support.budget import with_usual
from tests.support.commands import COMMAND, Run, run_process


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Provides a catalog with two namespaces, and a profile for it, which is the default."""
    Run("profile", "add", "lake", "-i", "dir", "-p", f"root={tmp_path / 'lake'}")
    (tmp_path / "lake").mkdir()
    for namespace in ("sales", "stock"):
        assert Run("ns", "create", namespace).code == Code.OK
    for table in ("sales.orders", "sales.offers", "stock.items"):
        assert Run("create", table).code == Code.OK
    return tmp_path / "lake"


def completion(*words: str) -> dict[str, str]:
    """Returns the environment in which bash asks for the last word."""
    return {
        "_LANCE_NS_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["lance-ns", *words]),
        "COMP_CWORD": str(len(words)),
        # A busy machine may need longer than a shell should wait.
        "LANCE_NS_COMPLETION_TIMEOUT": "60s",
    }


def commands(group: Any) -> Iterator[Sequence[str]]:
    """Yields the words of each visible command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from ([name, *words] for words in commands(command))
        elif not command.hidden:
            yield [name]


def complete(*words: str) -> Sequence[str]:
    run = Run(env=completion(*words))
    assert run.err == ""
    return run.out.split()


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("args", [[], ["ls"], ["copy"], ["maintain"], ["ns"], ["profile", "add"]])
def test_help_fits_the_terminal(args: Sequence[str], width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run = Run(*args, "--help")
    assert run.code == Code.OK
    # Words are not divided.
    assert all(len(line) <= width or len(line.split()) <= 3 for line in run.lines)


def test_help_names_each_command() -> None:
    run = Run("--help")
    for name in ("ls", "describe", "drop", "copy", "doctor", "profile", "ns"):
        assert re.search(rf"^  {name} ", run.out, re.MULTILINE)
    titles = [line for line in run.lines if re.fullmatch(r"\w[\w ]*:", line)]
    assert titles == ["Look:", "Change:", "Whole catalogs:", "Set up:", "Options:", "Catalog:", "Messages:"]
    run = Run("ns")
    assert run.code == Code.USAGE and run.err == "" and "  create " in run.out
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", Run("--version").out)


def test_options_follow_or_precede_the_command_and_may_contradict_each_other(lake: Path) -> None:
    assert Run("ls", "sales", "--json").out == Run("ls", "sales", "--output", "json").out
    assert "list_tables" in run_process("ls", "sales", "-v").stderr
    assert "list_tables" in run_process("-v", "ls", "sales").stderr
    run = Run("ls", "--json", "-o", "csv")
    assert run.code == Code.USAGE and run.err == "lance-ns: --json and --output: use one of them\n"
    assert Run("ls", "--json", "-o", "json").code == Code.OK


def test_quiet_shows_only_results_and_errors(lake: Path) -> None:
    assert Run("ls", "-q").err == ""
    assert (Run("create", "sales.new", "-q").out, Run("-q", "drop", "sales.new", "--yes").out) == ("", "")
    assert Run("resolve", "sales.*", "--no-pin", "-q").err == ""
    missing = Run("resolve", "sales.none", "-q")
    assert missing.code == Code.FAILURE and "sales$none" in missing.err


COMPLETIONS: Sequence[tuple[Sequence[str], Sequence[str]]] = [
    *((["ls", "-i", "h"], ["hive2", "hive3"]), (["ls", "-P", ""], ["lake"]), (["describe", "s"], ["sales", "stock"])),
    (["describe", "sa"], ["sales", "sales.offers", "sales.orders"]),
    *((["describe", "sales.or"], ["sales.orders"]), (["describe", "sales$or"], ["sales$orders"])),
    *((["ls", "st"], ["stock"]), (["ns", "drop", "st"], ["stock"]), (["head", "none.x"], [])),
    *((["ls", "-P", "wrong", "s"], []), (["copy", "--to-profile", ""], ["lake"])),
]


# Each is a process. The usual ones complete an option, a table, nothing, and the value of another command's option.
@pytest.mark.parametrize(("words", "offers"), with_usual(COMPLETIONS, *(COMPLETIONS[it] for it in (0, 3, 8, 10))))
def test_profiles_namespaces_and_tables_are_completed(lake: Path, words: Sequence[str], offers: Sequence[str]) -> None:
    assert sorted(complete(*words)) == offers


@pytest.mark.parametrize("args", list(commands(COMMAND)))
def test_the_help_of_each_command_has_an_example(args: Sequence[str]) -> None:
    help = " ".join(Run(*args, "--help").out.split())
    assert f"Example: lance-ns {' '.join(args)}" in help


@pytest.mark.parametrize(
    ("args", "advice"),
    [
        *((["find"], "Example: lance-ns find 'sales.**'"), (["audit"], "Example: lance-ns audit 'sales.**'")),
        *((["search", "*", "--vector", "1"], "--nearest"), (["query", "t", "--full_text", "a"], "; use --text")),
        *((["search", "*", "-k", "3"], "; use --limit"), (["count", "t", "--predicate", "a"], "; use --filter")),
    ],
)
def test_usage_errors_say_what_to_type(args: Sequence[str], advice: str) -> None:
    run = Run(*args)
    assert run.code == Code.USAGE and advice in run.err and run.err.count("\n") == 1


def test_what_help_lists_is_what_there_is() -> None:
    assert set(IMPLS) == set(BACKENDS)
    assert set(FIXABLE) == {name for name, kind in KINDS.items() if kind.fix is not None}
