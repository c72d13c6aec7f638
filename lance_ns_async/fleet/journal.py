"""Journals: SQLite files with the finished steps of a run, with which a stopped or killed run is resumed.

A journal belongs to one run, which its arguments identify. Its entries are JSON values by stage and key. An entry that
was flushed survives the end of the process at any moment, also by SIGKILL. Entries of one `put` are stored together or
not at all. The last entries before a kill may be lost, so an operation must be able to repeat what they record: it
checks whether a change was already made, or records its intention, with `flush`, before the change.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import anyio
from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import shortened
from lance_ns_async.storage.process_end import native_call, thread_start

T = TypeVar("T")

JournalEntry: TypeAlias = tuple[str, str, Any]
"""The stage, the key, and the value, of JSON's types."""

_FORMAT = 1
_MOST_PENDING = 500  # Number of entries that are written together.
_LONGEST_PENDING = 0.5  # Seconds after which pending entries are written with the next one.
_LONGEST_SHOWN = 80


class Journal:
    """The journal of one run; without a file, it stores nothing. See `open_journal`."""

    def __init__(self, connection: sqlite3.Connection | None, path: str) -> None:
        self._connection = connection
        self._path = path
        self._pending: list[JournalEntry] = []
        self._written_at = monotonic()
        self._writing = anyio.Lock()

    async def entries(self, stage: str) -> dict[str, Any]:
        """Returns the values of a stage by key, as the file had them when the run began, and written ones."""
        if self._connection is None:
            return {}
        connection, query = self._connection, "SELECT key, value FROM entries WHERE stage = ?"
        rows = await _in_thread(self._path, lambda: connection.execute(query, (stage,)).fetchall())
        return {key: _decode(value, self._path, f"entries, row stage={stage!r} key={key!r}") for key, value in rows}

    async def put(self, *entries: JournalEntry) -> None:
        """Records entries, which replace earlier ones of the same stage and key; they are written in batches."""
        if self._connection is None:
            return
        self._pending += entries
        if len(self._pending) >= _MOST_PENDING or monotonic() - self._written_at > _LONGEST_PENDING:
            await self.flush()

    async def flush(self) -> None:
        """Writes the pending entries, which then survive the end of the process."""
        if self._connection is None:
            return
        async with self._writing:
            batch, self._pending = self._pending, []
            self._written_at = monotonic()
            if batch:
                await _in_thread(self._path, partial(_write, self._connection, batch))

    async def finish(self) -> None:
        """Marks the run as complete: the next run with this file starts from the beginning."""
        if self._connection is not None:
            await self.flush()
            mark = partial(self._connection.execute, "INSERT OR REPLACE INTO meta VALUES ('finished', '1')")
            await _in_thread(self._path, mark)

    async def aclose(self) -> None:
        """Writes the pending entries and closes the file, also if the run was cancelled."""
        if self._connection is not None:
            with anyio.CancelScope(shield=True):
                try:
                    await self.flush()
                finally:
                    await _in_thread(self._path, self._connection.close)
                    self._connection = None


@asynccontextmanager
async def open_journal(
    path: str | os.PathLike[str] | None, operation: str, arguments: Mapping[str, Any]
) -> AsyncGenerator[Journal, None]:
    """Opens the journal of a run: a new one, or that of the same run if it was stopped.

    The journal of a finished run is emptied. `arguments` identify the run; they are of JSON's types, without secrets:
    see `Session.catalog` and `function_name`. Raises InvalidInputError if the file belongs to another run, is in use by
    another process, is not a journal, or cannot be created.
    """
    text = "" if path is None else os.fspath(path)
    connection = None
    if path is not None:
        run = {"operation": operation, **arguments}
        connection = await _in_thread(text, partial(_open, text, json.loads(json.dumps(run, sort_keys=True))))
    journal = Journal(connection, text)
    try:
        yield journal
    finally:
        await journal.aclose()


def function_name(function: object) -> str | None:
    """Returns the name of a function, for `open_journal`; None if there is none."""
    if function is None:
        return None
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _open(path: str, run: Mapping[str, Any]) -> sqlite3.Connection:
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InvalidInputError(f"journal {path}: there is no folder {folder}; create it, or use another file")
    connection: sqlite3.Connection | None = None
    try:
        # Threads use the connection one after the other.
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        # The lock is held until the connection is closed or the process ends, so that two runs cannot use one file.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        # The check comes before the first change, because the file may be a database of another program.
        _check_kind(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        _prepare(connection, path, run)
        connection.execute("COMMIT")
    except BaseException as e:
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
        if not isinstance(e, sqlite3.Error):
            raise
        if getattr(e, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise InvalidInputError(f"journal {path}: another run uses it; wait for that, or use another file") from e
        raise InvalidInputError(f"journal {path}: it cannot be used ({e}); use another file") from e
    return connection


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def _check_kind(connection: sqlite3.Connection, path: str) -> None:
    names = _tables(connection)
    if names and names != {"meta", "entries"}:
        raise InvalidInputError(f"journal {path}: it is a database of another program; use another file")


def _prepare(connection: sqlite3.Connection, path: str, run: Mapping[str, Any]) -> None:
    """Creates the tables of a new journal; checks that an existing one belongs to the run."""
    is_new = not _tables(connection)
    if is_new:
        connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        connection.execute(
            "CREATE TABLE entries (stage TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY (stage, key)) WITHOUT ROWID"
        )
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    if not is_new and meta.get("format") != str(_FORMAT):
        raise InvalidInputError(f"journal {path}: another version of this package wrote it; use another file")
    other = _decode(meta["run"], path, "meta, row key='run'") if "run" in meta else run
    if not isinstance(other, dict):
        raise InvalidInputError(f"journal {path}: its run is no JSON object; use another file")
    if difference := _difference(other, run):
        raise InvalidInputError(f"journal {path}: it belongs to another run ({difference}); use another file")
    if meta.get("finished"):
        connection.execute("DELETE FROM entries")
        connection.execute("DELETE FROM meta")
    values = [("format", str(_FORMAT)), ("run", json.dumps(run, sort_keys=True))]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)


def _decode(text: Any, path: str, row: str) -> Any:
    """Returns the value of a row, which is no JSON if another program has changed it or the file is damaged."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as e:
        raise InvalidInputError(
            f"journal {path}: the value in table {row} is not JSON ({e}); use another file, and the run starts anew"
        ) from e


def _difference(other: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    for name in sorted({*other, *run}):
        there, here = other.get(name), run.get(name)
        if there != here:
            texts = (shortened(json.dumps(value, ensure_ascii=False), _LONGEST_SHOWN) for value in (there, here))
            return f"{name} is {next(texts)} there, and {next(texts)} here"
    return ""


def _write(connection: sqlite3.Connection, entries: Iterable[JournalEntry]) -> None:
    rows = [(stage, key, json.dumps(value)) for stage, key, value in entries]
    connection.execute("BEGIN")
    try:
        connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


async def _in_thread(path: str, work: Callable[[], T]) -> T:
    def run() -> T:
        with native_call(path):
            return work()

    try:
        # The work is not abandoned on cancellation, so that the connection has one user at a time.
        with thread_start(), anyio.CancelScope(shield=True):
            result = await anyio.to_thread.run_sync(run)
    except sqlite3.Error as e:
        raise InvalidInputError(f"journal {path}: it cannot be used ({e}); use another file") from e
    return result
