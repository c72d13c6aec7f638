"""The command `sql`: a SELECT over the tables of a catalog, or a prompt for several."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import lance_namespace.errors as err
from typer import Argument, Option, get_app_dir

from lance_ns_async.cli import errors, output
from lance_ns_async.cli.errors import Misuse, hint
from lance_ns_async.cli.options import CommonOptions, FormatOrSuffix, Out
from lance_ns_async.cli.output import Format, format_for
from lance_ns_async.cli.selecting import match_tables, offers
from lance_ns_async.errors import suggest
from lance_ns_async.model import NamespaceId, is_pattern

if TYPE_CHECKING:
    from lance_ns_async import Namespace

_SHOWN = 100  # Maximum number of rows on a terminal by default.
_HISTORY = 1_000  # Maximum number of lines in the history.
_PROMPT, _CONTINUATION = "lance> ", "   ... "

_COMMANDS = (".tables", ".describe TABLE", ".help", ".quit")
_LEAVING = (".quit", ".exit")

_PIECES = re.compile(r"'[^']*'?|\"[^\"]*\"?|\$\$.*?(?:\$\$|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|;|.", re.DOTALL)
"""Texts, quoted names, comments and single characters; only a semicolon of its own ends a statement."""

_HELP = """A statement ends with a semicolon: select * from sales.orders limit 10;
FROM takes ids (sales.orders), patterns (sales.*, "**.orders"), versions (sales.orders at (version => 3)), and searches
(nearest('ml.docs', [1.0, 0.5], k => 5), search('ml.docs', 'words')).
.tables [PATTERN]  list tables       .describe TABLE  show its columns
.help              this text         .quit            leave, as Ctrl-D does"""


def sql(
    on: CommonOptions,
    text: Annotated[
        str | None,
        Argument(help="A SELECT, e.g. \"select count(*) from 'sales.*'\"; without it, from stdin or a prompt."),
    ] = None,
    limit: Annotated[
        int | None,
        Option("--limit", "-n", min=1, help=f"Maximum number of rows; by default {_SHOWN}, or with --out all."),
    ] = None,
    explain: Annotated[bool, Option("--explain", help="Show the plan instead of the rows.")] = False,
    memory_limit: Annotated[str | None, Option("--memory", metavar="SIZE", help="Memory for DuckDB, e.g. 4GB.")] = None,
    threads: Annotated[int | None, Option("--threads", min=1, help="Threads of DuckDB; by default all.")] = None,
    timeout: Annotated[
        float | None, Option("--within", metavar="SECONDS", help="Time after which the statement is stopped.")
    ] = None,
    format: FormatOrSuffix = None,
    out: Out = None,
) -> None:
    """Query tables with SQL, by DuckDB: any ids and patterns of the catalog in FROM."""
    chosen_format = format_for(format, out)
    with on.require().open() as catalog:
        is_written = False

        def run(statement: str) -> None:
            nonlocal is_written
            if is_written:
                raise Misuse(f"--out {out}: it has the rows of the first statement; run each by a command of its own")
            is_written = out is not None
            most = limit or (None if out is not None else _SHOWN + 1)
            result = catalog.sql(
                f"EXPLAIN {statement}" if explain and not statement.casefold().startswith("explain") else statement,
                memory_limit=memory_limit,
                threads=threads,
                max_rows=most,
                timeout=timeout,
                progress=errors.shows_progress(),
            )
            rows = result.rows
            if explain and chosen_format in (Format.TABLE, Format.PLAIN) and out is None:
                print("\n".join(rows["plan"].to_pylist()))
                return
            is_cut = limit is None and out is None and rows.num_rows > _SHOWN
            output.write_table(rows.slice(0, _SHOWN) if is_cut else rows, chosen_format, out)
            if is_cut:
                hint(f"the first {_SHOWN} rows; --limit shows more")

        if text is not None:
            run(text.strip().removesuffix(";"))
        elif sys.stdin.isatty():
            _prompt(catalog, run)
        else:
            _run_lines(catalog, run, sys.stdin)


def _prompt(catalog: Namespace, run: Callable[[str], None]) -> None:
    """Runs statements until the end of the input; an error ends only its statement."""
    hint("statements end with ';'; .help shows more")
    with _editing(catalog):
        text = ""
        while True:
            try:
                line = input(_CONTINUATION if text else _PROMPT)
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                text = ""
                print()
                continue
            if not text and line.strip() in _LEAVING:
                return
            with _reported():
                # The rest is kept also if a statement before it fails.
                statements, text = _taken(text, line)
                for statement in statements:
                    _run_one(catalog, run, statement)


def _run_lines(catalog: Namespace, run: Callable[[str], None], lines: Iterable[str]) -> None:
    """Runs the statements and commands of a file; the first error ends it."""
    text = ""
    for line in lines:
        if not text and line.strip() in _LEAVING:
            return
        statements, text = _taken(text, line.rstrip("\n"))
        for statement in statements:
            _run_one(catalog, run, statement)
    # The last statement needs no semicolon.
    if text.strip():
        run(text.strip())


def _taken(text: str, line: str) -> tuple[Sequence[str], str]:
    """Returns the statements, or the command, that a line completes, and the rest, which is not complete."""
    if not text and line.startswith("."):
        return [line], ""
    parts = [""]
    for piece in _PIECES.findall(f"{text}{line}\n"):
        if piece == ";":
            parts.append("")
        elif piece.startswith("--") or (piece.startswith("/*") and piece.endswith("*/")):
            # A comment alone is no statement.
            parts[-1] += " "
        else:
            parts[-1] += piece
    *statements, rest = parts
    return [it.strip() for it in statements if it.strip()], rest if rest.strip() else ""


def _run_one(catalog: Namespace, run: Callable[[str], None], statement: str) -> None:
    if statement.startswith("."):
        _run_command(catalog, run, statement)
    else:
        run(statement)


def _run_command(catalog: Namespace, run: Callable[[str], None], line: str) -> None:
    name, _, argument = line.strip().partition(" ")
    if name == ".tables":
        pattern = argument.strip() or "**"
        tables = match_tables(catalog, pattern if is_pattern(pattern) else f"{pattern}.*")
        for id in tables:
            print(id)
        hint(f"{len(tables):,} tables")
    elif name == ".describe" and argument:
        columns = 'column_name AS column, column_type AS type, "null" AS nullable'
        run(f"SELECT {columns} FROM (DESCRIBE {argument.strip().removesuffix(';')})")  # noqa: S608 - it is checked
    elif name == ".help":
        print(_HELP)
    else:
        raise err.InvalidInputError(f"{line.strip()}: {suggest(name, _COMMANDS)}")


@contextmanager
def _reported() -> Iterator[None]:
    """Writes an error of one statement, and goes on."""
    try:
        yield
    except err.LanceNamespaceError as error:
        errors.say(str(error))
    except KeyboardInterrupt:
        errors.say("stopped")


@contextmanager
def _editing(catalog: Namespace) -> Iterator[None]:
    """Provides the prompt with a history that is kept, and with the completion of ids, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    history = Path(get_app_dir("lance-ns")) / "sql_history"
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_HISTORY)
    readline.set_completer(_Completer(catalog).complete)
    readline.set_completer_delims(" \t\n(),;'\"")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)
            history.chmod(0o600)


class _Completer:
    """Completes the ids of tables and namespaces."""

    def __init__(self, catalog: Namespace) -> None:
        self._catalog = catalog
        self._offers: Sequence[str] = ()

    def complete(self, text: str, state: int) -> str | None:
        """Returns the offer of this number; readline asks for the first one first."""
        if state == 0:
            parent, _, _ = text.rpartition(".")
            self._offers = ()
            # An error would be written in the middle of the statement.
            with suppress(err.LanceNamespaceError):
                self._offers = list(offers(self._catalog, NamespaceId(parent), text, ".", with_tables=True))
        return self._offers[state] if state < len(self._offers) else None
