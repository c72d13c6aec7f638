"""Datasets for Python callers: opened, written, many concurrently, and kept open."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, CreateTableTagRequest, DeclareTableRequest

from lance_ns_async import AsyncNamespace, DirNamespace
from lance_ns_async.facade.callback_namespace import CallbackNamespace
from lance_ns_async.gateway import serving
from lance_ns_async.storage.arrow import align, align_reader
from lance_ns_async.storage.opening import Opener
from tests.fakes.iceberg import FakeIceberg
from tests.support.errors import catch
from tests.support.lake import ID, ROWS, Lake, lake, stream

pytestmark = pytest.mark.environment


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        yield opened


async def test_a_table_is_written_and_opened(here: Lake) -> None:
    made = await here.ns.write(ID, ROWS)
    assert (made.version, made.to_table()) == (1, ROWS)
    assert (await here.ns.write(ID, ROWS, mode="append")).version == 2
    assert (await here.ns.write(ID, pa.table({"x": [1]}), mode="overwrite")).version == 3
    assert (await here.ns.open(ID)).schema.names == ["x"]
    assert (await here.ns.open(ID, version=2)).count_rows() == 6
    await here.ns.create_table_tag(CreateTableTagRequest(id=ID, tag="first", version=1))
    assert (await here.ns.open(ID, version="first")).to_table() == ROWS
    assert (await here.ns.write(["n", "new"], ROWS, mode="overwrite")).version == 1


async def test_a_table_that_cannot_be_opened_or_written_is_reported(here: Lake) -> None:
    await here.ns.declare_table(DeclareTableRequest(id=["n", "declared"]))
    await here.create()
    for id in (["n", "none"], ["n", "declared"]):
        await catch(err.TableNotFoundError, here.ns.open(id), rf"^Table not found: n\${id[1]} ")
    await catch(err.TableNotFoundError, here.ns.write(["n", "none"], ROWS, mode="append"))
    await catch(err.TableVersionNotFoundError, here.ns.open(ID, version=9))
    await catch(err.TableTagNotFoundError, here.ns.open(ID, version="no"))
    await catch(err.TableAlreadyExistsError, here.ns.write(ID, ROWS))
    mode: Any = "insert"
    with pytest.raises(err.InvalidInputError, match=r"^mode 'insert': unknown, known are create, append, overwrite"):
        await here.ns.write(ID, ROWS, mode=mode)
    assert (await here.ns.write(["n", "declared"], ROWS, mode="append")).version == 1


class Frame:
    """An Arrow data frame of any library."""

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return ROWS.__arrow_c_stream__(schema)


@pytest.mark.parametrize(
    "data",
    [
        *(ROWS, ROWS.to_batches()[0]),
        pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches()),
        *(pa.dataset.dataset(ROWS), Frame()),
    ],
    ids=["table", "batch", "reader", "dataset", "frame"],
)
async def test_data_may_be_of_any_kind_that_arrow_knows(here: Lake, data: Any) -> None:
    assert (await here.ns.write(ID, data)).to_table() == ROWS


async def test_a_dataset_may_be_copied(here: Lake) -> None:
    await here.create()
    assert (await here.ns.write(["n", "copy"], await here.ns.open(ID))).to_table() == ROWS


@pytest.mark.parametrize("data", [None, [{"id": 1}], "rows", b"rows"])
async def test_data_that_arrow_does_not_know_is_refused_before_anything_is_done(here: Lake, data: Any) -> None:
    with pytest.raises(err.InvalidInputError, match=rf"^data: {type(data).__name__} is not Arrow data; pass"):
        await here.ns.write(ID, data)
    assert not await here.ns.exists(ID)


async def test_many_are_opened_and_one_that_fails_spoils_no_other(here: Lake) -> None:
    names = [f"t{n}" for n in range(20)]
    for name in names:
        await here.create(["n", name], pa.table({"name": [name]}))
    await here.ns.declare_table(DeclareTableRequest(id=["n", "declared"]))
    steps: list[tuple[int, int]] = []
    ids = [["n", name] for name in [*names, "declared", "none", "t0"]]
    result = await here.ns.open_many(ids, max_in_flight=4, progress=lambda *step: steps.append(step))
    assert [id.name for id in result.tables] == names and steps[-1] == (22, 22) and len(result) == 22
    assert all(it.to_table().to_pylist() == [{"name": id.name}] for id, it in result.tables.items())
    assert {id.name: type(e) for id, e in result.errors.items()} == {
        "declared": err.TableNotFoundError,
        "none": err.TableNotFoundError,
    }
    with pytest.raises(err.TableNotFoundError, match="and 1 more errors among 22 tables"):
        result.raise_for_errors()
    good = await here.ns.open_many([["n", "t1"]])
    assert good.raise_for_errors() is good
    with pytest.raises(err.TableNotFoundError, match="none"):
        (await here.ns.open_many([["n", "none"]])).raise_for_errors()
    await catch(err.InvalidInputError, here.ns.open_many([ID], max_in_flight=0), "max_in_flight 0")
    assert len(await here.ns.open_many([])) == 0


async def test_a_table_made_anew_at_the_same_place_is_not_taken_for_the_old_one(here: Lake) -> None:
    for n in range(3):
        location = await here.location() if n else None
        rows = pa.table({f"c{n}": [n]})
        if location:
            lance.LanceDataset.drop(location)
            lance.write_dataset(rows, location)
        else:
            await here.create(rows=rows)
        assert (await here.ns.open(ID)).to_table() == rows


async def test_caches_are_shared_and_datasets_keep_them(here: Lake) -> None:
    await here.create()
    await here.create(["n", "other"])
    one, other = await here.ns.open(ID), await here.ns.open(["n", "other"])
    caches: Any = one.session()
    assert caches.is_same_as(other.session())
    await here.ns.aclose()
    assert caches.is_same_as(one.session()) and one.count_rows() == 3
    await catch(err.InvalidInputError, here.ns.open(ID), "it is closed")


def test_caches_are_let_go() -> None:
    opener = Opener()
    caches = opener.caches()
    held = sys.getrefcount(caches)
    opener.close()
    # Lance's own objects do not support weak references.
    assert sys.getrefcount(caches) == held - 1


def namespaces() -> set[int]:
    """Returns the namespaces that are still referenced."""
    gc.collect()
    return {id(held) for held in gc.get_objects() if isinstance(held, CallbackNamespace)}


async def test_the_callback_for_versions_is_released_with_the_last_dataset(tmp_path: Path) -> None:
    before = namespaces()
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            await ns.create_namespace(CreateNamespaceRequest(id=["n"]))
            datasets = [await ns.write(ID, ROWS), await ns.open(ID)]
            assert len(namespaces() - before) == 1
        datasets.pop()
        assert datasets[0].count_rows() == 3 and len(namespaces() - before) == 1
        datasets.pop()
        assert namespaces() <= before


WIDE = pa.decimal128(20, 3)
VALUES = [Decimal("1.250"), None, Decimal("-3.500")]
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "alone": (WIDE, VALUES),
    "256": (pa.decimal256(40, 3), VALUES),
    "list": (pa.list_(WIDE), [VALUES, None, []]),
    "struct": (pa.struct([("a", WIDE)]), [{"a": value} for value in VALUES]),
    "map": (pa.map_(pa.string(), WIDE), [[("k", VALUES[0])], None, []]),
}
SHIFTS = [0, 3, 8]
TEXTS = ["longer than twelve characters", None, "short"]
VIEWS: dict[str, pa.Array] = {
    "string": pa.array(TEXTS, pa.string_view()),
    "binary": pa.array([b"longer than twelve bytes", None, b"short"], pa.binary_view()),
    "list": pa.array([TEXTS, None, []], pa.list_(pa.string_view())),
    "large": pa.array([TEXTS, None, []], pa.large_list(pa.string_view())),
    "struct": pa.array([{"a": text} for text in TEXTS], pa.struct([("a", pa.string_view())])),
    "map": pa.array([[("k", TEXTS[0])], None, []], pa.map_(pa.string(), pa.string_view())),
    "integer": pa.array([1, None, 3]),
    "dictionary": (codes := pa.array(TEXTS).dictionary_encode()),
    "dictionary in struct": pa.StructArray.from_arrays([codes], ["a"], mask=pa.array([False, True, False])),
    "dictionary in list": pa.ListArray.from_arrays([0, 2, None, 3], codes),
}


def shifted(table: pa.Table, shifts: Sequence[int] = range(16)) -> Iterator[pa.Table]:
    """Yields the table from streams that begin at each of these offsets."""
    data = stream(table)
    for shift in shifts:
        with pa.ipc.open_stream(pa.py_buffer(memoryview(bytes(shift) + data)[shift:])) as reader:
            yield reader.read_all()


def addresses(table: pa.Table) -> list[int]:
    arrays = [chunk for column in table.columns for chunk in column.chunks]
    return [buffer.address for array in arrays for buffer in array.buffers() if buffer is not None]


@pytest.mark.parametrize("name", TYPES)
def test_wide_values_are_moved_and_stay_the_same(name: str) -> None:
    kind, values = TYPES[name]
    table = pa.table({"wide": pa.array(values, kind), "n": [1, 2, 3]}).replace_schema_metadata({"k": "v"})
    were = set[int]()
    for odd in shifted(table):
        were.update(address % 16 for address in addresses(odd.select(["wide"])))
        aligned = align(odd)
        assert aligned.equals(table, check_metadata=True)
        assert {address % 16 for address in addresses(aligned.select(["wide"]))} == {0}
        assert {address % 8 for address in addresses(aligned)} == {0}
    assert len(were) > 1


def test_what_lies_well_is_not_copied() -> None:
    table = pa.table({"d": pa.array(VALUES, WIDE), "s": ["a", "b", None]})
    assert align(table) is table
    (batch,) = table.to_batches()
    assert align(batch) is batch
    (read_batch,) = align_reader(table.to_reader())
    assert addresses(pa.table(read_batch)) == addresses(table)


@pytest.mark.parametrize("form", ["stream", "table", "reader"])
def test_decimals_of_a_stream_are_written(tmp_path: Path, form: str) -> None:
    table = pa.table({"b": [True, None, False], "d": pa.array(VALUES, WIDE)})
    with DirNamespace(root=str(tmp_path)) as ns:
        for n, odd in enumerate(shifted(table)):
            id = [f"t{n}"]
            if form == "stream":
                ns.create_table({"id": id}, memoryview(bytes(n) + stream(table))[n:])  # any buffer is accepted
            else:
                ns.write(id, odd if form == "table" else odd.to_reader())
            assert ns.open(id).to_table().equals(table)


@pytest.mark.parametrize("form", ["stream", "table", "batch", "reader", "merge"])
@pytest.mark.parametrize("name", VIEWS)
def test_views_and_dictionaries_of_a_stream_are_written(tmp_path: Path, name: str, form: str) -> None:
    table = pa.table({"n": [1, 2, 3], "v": VIEWS[name]})
    with DirNamespace(root=str(tmp_path)) as ns:
        for n, odd in zip(SHIFTS, shifted(table, SHIFTS), strict=True):
            id = [f"t{n}"]
            if form == "stream":
                ns.create_table({"id": id}, memoryview(bytes(n) + stream(table))[n:])
            elif form == "merge":
                ns.declare_table({"id": id})
                request = {"id": id, "on": ["n"], "when_not_matched_insert_all": True}
                ns.merge_insert_into_table(request, memoryview(bytes(n) + stream(table))[n:])
            else:
                ns.write(id, {"table": odd, "batch": odd.to_batches()[0], "reader": odd.to_reader()}[form])
            assert ns.open(id).to_table()["v"].to_pylist() == table["v"].to_pylist()


async def test_views_are_written_through_a_gateway(tmp_path: Path) -> None:
    table = pa.table({"v": VIEWS["string"]})
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns) as gateway:
        async with AsyncNamespace.connect("rest", gateway.properties) as client:
            # The position of the rows in the body depends on the name of the columns.
            for n in (1, 2):
                await client.create_table({"id": [f"t{n}"]}, stream(table.rename_columns(["v" * n * 4])))
                assert (await ns.open([f"t{n}"])).to_table().column(0).to_pylist() == TEXTS
