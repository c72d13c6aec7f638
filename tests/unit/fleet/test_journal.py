"""Journals: entries survive a kill, and a file belongs to one run."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import AsyncNamespace
from lance_ns_async.fleet.journal import function_name, open_journal

RUN = {"uri": "s3://b", "into": ["a"]}


def run_script(script: str, file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


async def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    async with open_journal(file, "copy", RUN) as journal:
        await journal.put(("tables", "a", 1), ("tables", "b", None))
        await journal.put(("tables", "a", {"x": [2]}), ("folders", "a", 3))
    async with open_journal(file, "copy", RUN) as journal:
        assert await journal.entries("tables") == {"a": {"x": [2]}, "b": None}
        assert await journal.entries("folders") == {"a": 3}


async def test_a_finished_run_starts_again(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    for _ in range(2):
        async with open_journal(file, "copy", RUN) as journal:
            assert await journal.entries("tables") == {}
            await journal.put(("tables", "a", 1))
            await journal.finish()


async def test_without_a_file_nothing_is_kept() -> None:
    async with open_journal(None, "copy", RUN) as journal:
        await journal.put(("tables", "a", 1))
        await journal.flush()
        assert await journal.entries("tables") == {}
        await journal.finish()


async def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    async with open_journal(file, "copy", RUN):
        pass
    with pytest.raises(InvalidInputError, match=r'another run \(into is \["a"\] there, and \["b"\] here\)'):
        async with open_journal(file, "copy", {**RUN, "into": ["b"]}):
            pass
    with pytest.raises(InvalidInputError, match="operation is"):
        async with open_journal(file, "discover", RUN):
            pass


async def test_a_journal_in_use_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    async with open_journal(file, "copy", RUN):
        with pytest.raises(InvalidInputError, match="another run uses it"):
            async with open_journal(file, "copy", RUN):
                pass


async def test_other_files_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no database, but a text that is longer than the header of one, which has one hundred bytes " * 2)
    database = tmp_path / "database"
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    for file, message in ((text, "cannot be used"), (database, "another program"), (tmp_path / "x/y", "no folder")):
        before = file.read_bytes() if file.exists() else None
        with pytest.raises(InvalidInputError, match=message):
            async with open_journal(file, "copy", RUN):
                pass
        assert (file.read_bytes() if file.exists() else None) == before


KILLED = """
import asyncio, os, signal, sys
from lance_ns_async.fleet.journal import open_journal
async def main():
    async with open_journal(sys.argv[1], "copy", {"n": 1}) as journal:
        for n in range(100_000):
            await journal.put(("one", str(n), n), ("two", str(n), n))
            if n == int(sys.argv[2]):
                await journal.flush()
                await journal.put(("one", "lost", 0))
                os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_flushed_entries_survive_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    for count in (700, 1300):
        assert run_script(KILLED, file, str(count - 1)).returncode == -signal.SIGKILL
        async with open_journal(file, "copy", {"n": 1}) as journal:
            one, two = await journal.entries("one"), await journal.entries("two")
            assert one == two and len(one) == count


async def test_a_catalog_has_one_text_in_every_process(tmp_path: Path) -> None:
    script = (
        "import sys; from lance_ns_async import AsyncNamespace; "
        "print(AsyncNamespace.connect('dir', {'root': sys.argv[1]}).session.catalog)"
    )
    printed = run_script(script, tmp_path).stdout
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        assert printed.strip() == namespace.session.catalog


def test_functions_have_names() -> None:
    assert function_name(None) is None and function_name(function_name) == "lance_ns_async.fleet.journal.function_name"


@pytest.mark.parametrize("value", ["", "{", "not json", "[" * 100_000, b"\xff"])
async def test_a_value_that_is_not_json_is_named(tmp_path: Path, value: str | bytes) -> None:
    file = tmp_path / "journal"

    async def spoil(table: str, key: str) -> None:
        async with open_journal(file, "copy", RUN) as journal:
            await journal.put(("tables", "a", 1))
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(f"UPDATE {table} SET value = ? WHERE key = ?", (value, key))

    await spoil("entries", "a")
    async with open_journal(file, "copy", RUN) as journal:
        with pytest.raises(InvalidInputError, match=rf"{file}: .* entries, row stage='tables' key='a' is not JSON"):
            await journal.entries("tables")
    await spoil("meta", "run")
    with pytest.raises(InvalidInputError, match=rf"journal {file}: the value in table meta, row key='run' is not JSON"):
        async with open_journal(file, "copy", RUN):
            pass


async def test_a_run_that_is_no_object_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    async with open_journal(file, "copy", RUN):
        pass
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE meta SET value = '[1]' WHERE key = 'run'")
    with pytest.raises(InvalidInputError, match="its run is no JSON object"):
        async with open_journal(file, "copy", RUN):
            pass
