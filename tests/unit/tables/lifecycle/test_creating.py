"""Tables created with rows: with each mode, from any bytes, and concurrently."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateEmptyTableRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    RegisterTableRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableSchemaValidationError,
)

from lance_ns_async.namespace.client import AsyncNamespace
from tests.support.lake import ID, ROWS, Lake, lake, stream

OTHER = pa.table({"id": [9]})


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        yield opened


async def test_a_table_is_declared_and_written(here: Lake) -> None:
    request = CreateTableRequest(id=ID, properties={"owner": "me"})
    made = await here.ns.create_table(request, stream(ROWS))
    described = await here.ns.describe_table(DescribeTableRequest(id=ID))
    assert (made.version, made.location, made.properties) == (1, described.location, {"owner": "me"})
    assert described.properties == {"owner": "me"}
    assert (await here.dataset()).to_table() == ROWS


async def test_a_table_may_be_without_rows(here: Lake) -> None:
    await here.create(rows=ROWS.slice(0, 0))
    assert (await here.dataset()).to_table() == ROWS.slice(0, 0)


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, pa.py_buffer])
async def test_rows_may_be_in_any_bytes(here: Lake, form: Any) -> None:
    await here.ns.create_table(CreateTableRequest(id=ID), form(stream(ROWS)))
    assert await here.values("id") == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"^request_data: not an Arrow IPC stream \("),
        (b"garbage", r"^request_data: not an Arrow IPC stream \("),
        (b"\0" * 64, r"^request_data: not an Arrow IPC stream \("),
        (stream(ROWS)[:-200], r"^request_data: not an Arrow IPC stream \("),
        (stream(ROWS)[:60] + b"\xff" * 40 + stream(ROWS)[100:], r"^request_data: not an Arrow IPC stream \("),
        (b"ARROW1\0\0", "^request_data: must be an Arrow IPC stream, not a file"),
        (None, "^request_data: must be the bytes of an Arrow IPC stream, not NoneType"),
        ("text", "^request_data: must be the bytes of an Arrow IPC stream, not str"),
    ],
)
async def test_what_is_no_stream_is_refused_before_anything_is_done(here: Lake, data: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        await here.ns.create_table(CreateTableRequest(id=ID), data)
    assert not await here.ns.exists(ID) and here.left() == []


async def test_rows_that_contradict_themselves_are_refused(here: Lake) -> None:
    good = stream(pa.table({"s": ["abc"]}))
    # The string would end two gigabytes after its beginning.
    end = good.index(b"\0\0\0\0\x03\0\0\0") + 4
    bad = good[:end] + b"\xff\xff\xff\x7f" + good[end + 4 :]
    with pytest.raises(InvalidInputError, match="request_data: not an Arrow IPC stream"):
        await here.ns.create_table(CreateTableRequest(id=ID), bad)


async def test_in_a_missing_namespace_nothing_is_created(here: Lake) -> None:
    with pytest.raises(NamespaceNotFoundError, match=r"^Namespace not found: none "):
        await here.create(["none", "t"])
    assert here.left() == []


@pytest.mark.parametrize("mode", [None, "Create", "create"])
async def test_one_that_is_there_is_not_created(here: Lake, mode: str | None) -> None:
    await here.create()
    with pytest.raises(TableAlreadyExistsError, match=r"^Table already exists: n\$t "):
        await here.create(rows=OTHER, mode=mode)
    assert (await here.dataset()).to_table() == ROWS


async def test_one_that_is_there_is_kept(here: Lake) -> None:
    for expected in (1, 1):
        made = await here.ns.create_table(CreateTableRequest(id=ID, mode="ExistOk"), stream(ROWS))
        assert (made.version, made.location) == (expected, await here.location())
    assert (await here.dataset()).version == 1


async def test_one_that_is_only_declared_is_there(here: Lake) -> None:
    await here.ns.declare_table(DeclareTableRequest(id=ID))
    with pytest.raises(TableAlreadyExistsError):
        await here.create()
    kept = await here.ns.create_table(CreateTableRequest(id=ID, mode="exist_ok"), stream(ROWS))
    assert kept.version is None and kept.location == await here.location()
    made = await here.ns.create_table(CreateTableRequest(id=ID, mode="overwrite"), stream(ROWS))
    assert made.version == 1 and await here.values("id") == [1, 2, 3]


async def test_one_that_is_there_is_overwritten_by_a_version(here: Lake) -> None:
    for expected in (1, 2):
        made = await here.ns.create_table(CreateTableRequest(id=ID, mode="Overwrite"), stream(OTHER))
        assert made.version == expected
    await here.create(mode="overwrite")
    assert (await here.dataset()).to_table() == ROWS
    assert (await here.dataset(version=2)).to_table() == OTHER


async def test_an_overwrite_leaves_properties_that_are_not_given(here: Lake) -> None:
    await here.create(properties={"owner": "me"})
    await here.create(mode="overwrite", properties={"owner": "me"})
    await here.create(mode="overwrite")
    table = await here.ns.describe_table(DescribeTableRequest(id=ID))
    assert table.properties == {"owner": "me"} and (await here.dataset()).version == 3


async def test_properties_that_the_catalog_would_not_keep_are_refused_first(here: Lake) -> None:
    await here.ns.write(["t"], ROWS)
    request = CreateTableRequest(id=["t"], mode="overwrite", properties={"owner": "you"})
    with pytest.raises(InvalidInputError, match="stores properties only for tables"):
        await here.ns.create_table(request, stream(OTHER))
    assert (await here.ns.open(["t"])).to_table() == ROWS


@pytest.mark.parametrize("mode", ["", "append", "existing"])
async def test_an_unknown_mode_is_refused(here: Lake, mode: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^mode '{mode}': unknown; it is one of create, existok, overwrite"):
        await here.create(mode=mode)
    assert not await here.ns.exists(ID)


async def test_columns_that_lance_cannot_have_leave_nothing(here: Lake) -> None:
    for rows in (pa.table({"a.b": [1]}), pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])):
        with pytest.raises(TableSchemaValidationError, match=r"^Table schema invalid: n\$t "):
            await here.create(rows=rows)
        assert not await here.ns.exists(ID) and here.left() == []


async def test_of_many_that_create_it_at_once_one_does(here: Lake) -> None:
    outcomes = await _at_once(here.ns, "create")
    assert outcomes.count(None) == 1 and outcomes.count(TableAlreadyExistsError) == 7
    assert len(await here.values("id")) == 1


async def test_all_that_keep_what_is_there_find_it(here: Lake) -> None:
    assert await _at_once(here.ns, "existok") == [None] * 8
    assert len(await here.values("id")) == 1


async def test_dropped_and_deregistered_tables_make_room(here: Lake) -> None:
    await here.create()
    at = await here.location()
    await here.ns.deregister_table(DeregisterTableRequest(id=ID))
    await here.create(rows=OTHER)
    await here.ns.register_table(RegisterTableRequest(id=["n", "old"], location=at))
    assert (await here.dataset(["n", "old"])).to_table() == ROWS and (await here.dataset()).to_table() == OTHER


async def test_the_older_name_of_declaring(here: Lake) -> None:
    made = await here.ns.create_empty_table(CreateEmptyTableRequest(id=ID, properties={"k": "v"}))
    assert (made.location, made.version, made.properties) == (await here.location(), None, {"k": "v"})
    with pytest.raises(TableAlreadyExistsError):
        await here.ns.create_empty_table(CreateEmptyTableRequest(id=ID))
    kept = await here.ns.create_empty_table(CreateEmptyTableRequest(id=ID, mode="ExistOk"))
    assert kept.location == made.location
    with pytest.raises(InvalidInputError, match=r"^mode 'Overwrite': unknown; it is one of create, existok"):
        await here.ns.create_empty_table(CreateEmptyTableRequest(id=ID, mode="Overwrite"))


async def _at_once(ns: AsyncNamespace, mode: str) -> list[type[LanceNamespaceError] | None]:
    outcomes: list[type[LanceNamespaceError] | None] = []

    async def create(n: int) -> None:
        try:
            await ns.create_table(CreateTableRequest(id=ID, mode=mode), stream(pa.table({"id": [n]})))
            outcomes.append(None)
        except LanceNamespaceError as e:
            outcomes.append(type(e))

    async with anyio.create_task_group() as group:
        for n in range(8):
            group.start_soon(create, n)
    return outcomes
