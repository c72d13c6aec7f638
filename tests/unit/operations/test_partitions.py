"""Partitioned directories: the layout of the spec, writes, new versions of the spec, and reads as one dataset."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace import CreateNamespaceRequest

from lance_ns_async import AsyncNamespace, Namespace, Partition
from tests.contract.conftest import SyncFace
from tests.support.errors import catch

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("event_date", pa.date32()), pa.field("country", pa.string())]
)
DAYS = [date(2025, 12, 10), date(2025, 12, 11), date(2024, 1, 1)]


def events(*rows: tuple[int, date | None, str | None]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


EVENTS = events((1, DAYS[0], "US"), (2, DAYS[0], "DE"), (3, DAYS[1], "US"), (4, DAYS[2], None), (5, None, "US"))


@pytest.fixture(params=["async", "sync"])
async def ns(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    properties = {"root": str(tmp_path / "events")}
    if request.param == "async":
        async with AsyncNamespace.connect("dir", properties) as namespace:
            yield namespace
    else:
        with Namespace.connect("dir", properties) as sync:
            yield SyncFace(sync)  # type: ignore[misc]  # it has the same methods


async def ids(ns: AsyncNamespace, where: str | None = None) -> list[int]:
    rows = [batch async for batch in ns.scan_partitions(where, columns=["id"])]
    return sorted(id for batch in rows for id in batch["id"].to_pylist())


def in_short(partitions: list[Partition]) -> set[tuple[int, tuple[Any, ...]]]:
    return {(it.spec_version, tuple(it.values.values())) for it in partitions}


def manifest(root: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lance.dataset(root / "__manifest").to_table().to_pylist()
    return rows


def folders(path: Path) -> set[Path]:
    return set(path.glob("events/*dataset"))


async def test_the_manifest_is_that_of_the_spec(ns: AsyncNamespace, tmp_path: Path) -> None:
    """Appendices B, C and E of the published text."""
    root = tmp_path / "events"
    first = await ns.partition_by(["event_date"], schema=SCHEMA)
    counts = await ns.write_partitions(EVENTS.slice(0, 3))
    await ns.partition_by(["year(event_date)", "country"])
    await ns.write_partitions(EVENTS.slice(0, 1))
    metadata = lance.dataset(root / "__manifest").metadata
    assert json.loads(metadata["partition_spec_v1"]) == json.loads(first.to_json())
    assert [field["metadata"]["lance:field_id"] for field in json.loads(metadata["schema"])["fields"]] == list("012")
    columns = ("partition_field_event_date", "partition_field_event_date_year", "partition_field_country")
    by_depth: dict[tuple[str, int], set[tuple[Any, ...]]] = {}
    for row in manifest(root):
        version, *names = row["object_id"].split("$")
        if row["object_type"] == "table":
            assert names.pop() == "dataset"
            assert re.fullmatch(rf"[0-9a-f]{{8}}_{re.escape(row['object_id'])}", row["location"])
            assert (root / row["location"]).is_dir()
        assert all(re.fullmatch("[a-z0-9]{16}", name) for name in names)
        values = tuple(row[column] for column in columns)
        by_depth.setdefault((f"{version} {row['object_type']}", len(names)), set()).add(values)
    assert by_depth == {
        ("v1 namespace", 0): {(None, None, None)},
        ("v1 namespace", 1): {(DAYS[0], None, None), (DAYS[1], None, None)},
        ("v1 table", 1): {(DAYS[0], None, None), (DAYS[1], None, None)},
        ("v2 namespace", 0): {(None, None, None)},
        ("v2 namespace", 1): {(None, 2025, None)},
        ("v2 namespace", 2): {(None, 2025, "US")},
        ("v2 table", 2): {(None, 2025, "US")},
    }
    assert (await ns.describe_namespace(["v1"])).properties == {"partition_spec": first.to_json()}
    (second,) = [it for it in await ns.list_partitions() if it.spec_version == 2]
    above = [(await ns.describe_namespace(list(second.id[:depth]))).properties for depth in (2, 3)]
    assert above == [{"partition.event_date_year": "2025"}, {"partition.country": "US"}]
    assert sorted(counts.values()) == [1, 2]


async def test_a_condition_is_applied_to_each_version_of_the_spec(ns: AsyncNamespace) -> None:
    """Appendix D of the published text: the first version cannot leave out partitions by the country."""
    await ns.partition_by(["event_date"], schema=SCHEMA)
    await ns.write_partitions(EVENTS)
    await ns.partition_by(["year(event_date)", "country"])
    await ns.write_partitions(EVENTS.set_column(0, SCHEMA.field("id"), pc.add(EVENTS["id"], 10)))
    where = "event_date = date '2025-12-10' AND country = 'US'"
    assert in_short(await ns.list_partitions(where)) == {(1, (DAYS[0],)), (2, (2025, "US"))}
    assert await ids(ns, where) == [1, 11] and await ids(ns) == [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]
    assert await ids(ns, "event_date is null") == [5, 15]
    assert await ids(ns, "country is null -- unknown") == [4, 14]
    assert await ns.list_partitions("event_date > date '2026-01-01'") == []
    assert await ids(ns, "event_date > date '2026-01-01'") == []


async def test_new_rows_are_appended_to_existing_partitions(ns: AsyncNamespace) -> None:
    await ns.partition_by(["country"], schema=SCHEMA)
    before = await ns.write_partitions(EVENTS)
    assert [it.values["country"] for it in await ns.list_partitions()] == ["DE", "US", None]
    again = await ns.write_partitions(pa.RecordBatchReader.from_batches(SCHEMA, EVENTS.to_batches(max_chunksize=1)))
    assert before == again and len(before) == 3
    # A partition without its table gets a new one.
    (germany,) = await ns.list_partitions("country = 'DE'")
    await ns.drop_table({"id": list(germany.id)})
    assert await ns.write_partitions(EVENTS.slice(1, 1)) == {germany.id: 1}
    assert await ids(ns) == sorted([1, 2, 3, 4, 5, 1, 3, 4, 5])


async def test_the_partitions_are_one_dataset_and_a_failing_one_is_named(ns: AsyncNamespace) -> None:
    await ns.partition_by(["country"], schema=SCHEMA)
    await ns.write_partitions(EVENTS)
    dataset = await ns.open_partitions("country = 'US'", max_in_flight=1)
    assert dataset.schema.equals(SCHEMA)
    assert sorted(dataset.to_table(["id"], "id > 1")["id"].to_pylist()) == [3, 5]
    assert (dataset.count_rows(), dataset.count_rows("id = 3")) == (3, 1)
    assert pa.table(dataset).schema.equals(SCHEMA) and pa.table(dataset).num_rows == 3
    assert repr(dataset) == """PartitionedDataset of 1 partitions, where="country = 'US'\""""
    # What is written later is not in a dataset that is open.
    await ns.write_partitions(EVENTS)
    assert dataset.count_rows() == 3
    for columns in (["none"], [], "id"):
        with pytest.raises(err.InvalidInputError, match="must be a list of some of id, event_date, country"):
            dataset.to_table(columns)
    (germany,) = await ns.list_partitions("country = 'DE'")
    lance.dataset(germany.location).drop_columns(["event_date"])
    caught = await catch(err.TableSchemaValidationError, ns.write_partitions(EVENTS))
    note = f"4 rows were appended to 2 partitions, but 1 partitions failed: {germany.id}"
    assert caught.value.__notes__ == [note, "all later rows were not appended either"]
    assert await ids(ns, "country = 'US' and id > 0") == [1, 1, 1, 3, 3, 3, 5, 5, 5]


async def test_a_change_by_pylance_loses_no_values(ns: AsyncNamespace, tmp_path: Path) -> None:
    """pylance 14 removes the columns of partitions with each of its own changes of the manifest."""
    root = tmp_path / "events"
    schema = pa.schema(
        [
            *(pa.field("at", pa.timestamp("us")), pa.field("price", pa.decimal128(7, 2)), pa.field("ok", pa.bool_())),
            *(pa.field("n", pa.int16()), pa.field("s", pa.string()), pa.field("b", pa.binary())),
            pa.field("c", pa.binary(2)),
        ]
    )
    values = [datetime(2025, 1, 1, 2, 3, 4, 5), Decimal("-1.50"), True, -3, 'a "$/=é', b"base64:/w==", b"\xff\x00"]
    rows = pa.table([[value, None] for value in values], schema=schema)
    await ns.partition_by(schema.names, schema=schema)
    await ns.write_partitions(rows)
    before = await ns.list_partitions()
    assert [it.values for it in before] == rows.to_pylist()
    make: Any = DirectoryNamespace
    make(root=str(root)).create_namespace(CreateNamespaceRequest(id=["other"]))
    assert "partition_field_s" not in manifest(root)[0] and await ns.list_partitions() == before
    await ns.write_partitions(rows)
    await ns.partition_by(["n"])
    assert "partition_field_s" in manifest(root)[0]
    async with AsyncNamespace.connect("dir", {"root": str(root)}) as other:
        assert await other.list_partitions() == before


async def test_values_that_cannot_be_restored_are_an_error(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.partition_by(["event_date"], schema=SCHEMA)
        await ns.write_partitions(EVENTS)
        dataset = lance.dataset(tmp_path / "__manifest")
        dataset.drop_columns(["partition_field_event_date"])
        dataset.update({"metadata": """'{"partition.event_date": "soon"}'"""}, where="object_id like 'v1$%'")
        await catch(err.InvalidTableStateError, ns.list_partitions(), "cannot be restored from the properties")


async def test_writers_at_the_same_time_share_the_partitions(tmp_path: Path) -> None:
    properties = {"root": str(tmp_path)}
    async with AsyncNamespace.connect("dir", properties) as ns:
        await ns.partition_by(["event_date", "country"], schema=SCHEMA)

        async def write(n: int) -> None:
            async with AsyncNamespace.connect("dir", properties) as writer:
                await writer.write_partitions(events((n, DAYS[0], "US"), (n + 100, DAYS[n % 2], None)))

        await asyncio.gather(*map(write, range(6)))
        assert await ids(ns) == [*range(6), *range(100, 106)]
        partitions = await ns.list_partitions()
        assert len(partitions) == len(in_short(partitions)) == 3
        # Two values of the first field, and three of both.
        assert len((await ns.list_namespaces({"id": ["v1"]})).namespaces) == 2


async def test_each_new_version_of_the_spec_has_its_own_number(tmp_path: Path) -> None:
    properties = {"root": str(tmp_path)}
    async with AsyncNamespace.connect("dir", properties) as ns:
        await ns.partition_by(["country"], schema=SCHEMA)

        async def divide(count: int) -> int:
            async with AsyncNamespace.connect("dir", properties) as other:
                return (await other.partition_by([f"bucket({count}, id)"])).id

        assert sorted(await asyncio.gather(*map(divide, range(2, 6)))) == [2, 3, 4, 5]
        assert len((await ns.list_namespaces({"id": []})).namespaces) == 5


async def test_the_version_in_the_manifest_is_read(ns: AsyncNamespace, tmp_path: Path) -> None:
    await ns.partition_by(["country"], schema=SCHEMA)
    await ns.write_partitions(EVENTS)
    await ns.write_partitions(EVENTS)
    lance.dataset(tmp_path / "events" / "__manifest").add_columns({"read_version": "cast(1 as bigint unsigned)"})
    assert {it.read_version for it in await ns.list_partitions()} == {1}
    assert await ids(ns) == [1, 2, 3, 4, 5]
    await catch(err.InvalidTableStateError, ns.write_partitions(EVENTS), r"is read at \{'read_version': 1\}")


async def test_a_partition_without_data_has_no_rows(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        spec = await ns.partition_by(["country"], schema=SCHEMA)
        (table,) = await ns.session.backend.add_partitions(spec, pa.table({"partition_field_country": ["US"]}))
        assert [it.table for it in await ns.list_partitions()] == [table] and await ids(ns) == []
        assert await ns.write_partitions(EVENTS.slice(0, 1)) == {table.id: 1}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (None, "schema: required for the first partitions"),
        (pa.schema({"at": pa.timestamp("ms")}), r"cannot store the type timestamp\[ms\] of 'at'; use timestamp\[us\]"),
        (pa.schema({"country": pa.dictionary(pa.int8(), pa.string())}), "cannot store the type dictionary"),
    ],
)
async def test_a_schema_is_stored_as_it_is(ns: AsyncNamespace, schema: pa.Schema | None, message: str) -> None:
    await catch(err.InvalidInputError, ns.partition_by(["country"], schema=schema), message)
    await catch(err.InvalidInputError, ns.list_partitions(), "this directory has no partitions")


async def test_a_directory_is_divided_from_the_beginning(ns: AsyncNamespace) -> None:
    await ns.create_namespace({"id": ["other"]})
    with pytest.raises(err.InvalidInputError, match="already has 1 tables and namespaces; partition a new directory"):
        await ns.partition_by(["country"], schema=SCHEMA)
    await ns.drop_namespace({"id": ["other"]})
    first = await ns.partition_by(["country"], schema=SCHEMA)
    assert await ns.partition_by(["country"], schema=SCHEMA) == await ns.partition_by(["country"]) == first
    with pytest.raises(err.InvalidInputError, match="differs from that of the existing partitions"):
        await ns.partition_by(["id"], schema=SCHEMA.remove(1))
    await catch(err.InvalidInputError, ns.partition_by(["id"], schema=SCHEMA), "omit it to divide new rows otherwise")


async def test_rows_of_other_columns_and_invalid_conditions_are_refused(ns: AsyncNamespace) -> None:
    await ns.partition_by(["country"], schema=SCHEMA)
    for rows, message in (
        (EVENTS.drop_columns(["country"]), r"missing \['country'\], additional \[\]"),
        (EVENTS.append_column("more", EVENTS["id"]), r"missing \[\], additional \['more'\]"),
        (EVENTS.set_column(1, "event_date", pa.array([1.5] * 5)), "the rows do not fit"),
        (EVENTS.set_column(0, "id", pa.array([1.5] * 5)), "the rows do not fit"),
    ):
        await catch(err.TableSchemaValidationError, ns.write_partitions(rows), message)
    assert await ns.list_partitions() == []
    # The order of the columns is no difference.
    await ns.write_partitions(EVENTS.select(["country", "id", "event_date"]))
    assert await ids(ns) == [1, 2, 3, 4, 5]
    for where in ("none = 1", "country = 1", "country =", "country = 'a'; true", 5):
        with pytest.raises(err.InvalidInputError, match="where "):
            await ns.list_partitions(where)  # type: ignore[arg-type]


async def test_values_are_written_as_they_are_or_refused(ns: AsyncNamespace) -> None:
    await ns.partition_by(["day(at)"], schema=pa.schema({"price": pa.decimal128(9, 2), "at": pa.timestamp("us")}))
    at = datetime(2026, 1, 1, 23, 30)
    zoned = pa.array([at], pa.timestamp("us", "America/New_York"))
    for price, times in ((pa.array([1.005]), pa.array([at])), (pa.array([Decimal(1)]), zoned)):
        with pytest.raises(err.TableSchemaValidationError, match=r"would change as .*; convert it first"):
            await ns.write_partitions(pa.table({"price": price, "at": times}))
    await ns.write_partitions(pa.table({"price": [1.25], "at": pa.array([at], pa.timestamp("ms"))}))
    assert (await ns.open_partitions()).to_table().to_pylist() == [{"price": Decimal("1.25"), "at": at}]


async def test_partitions_of_which_all_rows_match_are_dropped(ns: AsyncNamespace, tmp_path: Path) -> None:
    await ns.partition_by(["year(event_date)", "country"], schema=SCHEMA)
    await ns.write_partitions(EVENTS)
    before = folders(tmp_path)
    assert await ns.drop_partitions("event_date <= date '2025-12-10'") != []
    # The partition of 2025 and the United States also has a later day.
    assert await ids(ns) == [1, 2, 3, 5]
    dropped = await ns.drop_partitions("event_date < date '2026-01-01' and country = 'DE'")
    assert [tuple(it.values.values()) for it in dropped] == [(2025, "DE")] and await ids(ns) == [1, 3, 5]
    assert len(before - folders(tmp_path)) == 2
    # The namespaces without partitions are removed, too.
    assert {row["object_id"].count("$") for row in manifest(tmp_path / "events")} == {0, 1, 2, 3}
    assert len((await ns.list_namespaces({"id": ["v1"]})).namespaces) == 2
    await ns.write_partitions(EVENTS.slice(3, 1))
    assert await ids(ns) == [1, 3, 4, 5]
    # What others have added below a namespace stays.
    (other,) = {it.id[:2] for it in await ns.list_partitions("event_date is null")}
    await ns.create_namespace({"id": [*other, "other"]})
    assert len(await ns.drop_partitions("true")) == 3 and await ids(ns) == []
    assert {row["object_id"] for row in manifest(tmp_path / "events")} == {
        "v1",
        "$".join(other),
        f"{'$'.join(other)}$other",
    }
    with pytest.raises(err.InvalidInputError, match="where: required"):
        await ns.drop_partitions(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("days", [-800_000, 4_000_000])
async def test_a_day_outside_the_years_of_python_is_refused(ns: AsyncNamespace, days: int) -> None:
    rows = events((1, None, "US")).set_column(1, "event_date", pa.array([days], pa.int32()).cast(pa.date32()))
    await ns.partition_by(["event_date"], schema=SCHEMA)
    await catch(err.InvalidInputError, ns.write_partitions(rows), "outside the years 1 to 9999; divide by its year")
    await ns.partition_by(["year(event_date)"])
    await ns.write_partitions(rows)
    where = "event_date is not null and event_date <> date '2025-01-01'"
    assert (await ns.open_partitions(where)).count_rows() == 1 and await ns.drop_partitions("country = 'DE'") == []


async def test_a_write_finds_a_place_while_partitions_are_dropped(tmp_path: Path) -> None:
    properties = {"root": str(tmp_path)}
    async with AsyncNamespace.connect("dir", properties) as ns, AsyncNamespace.connect("dir", properties) as other:
        await ns.partition_by(["country"], schema=SCHEMA)

        async def drop() -> None:
            for _ in range(12):
                await other.drop_partitions("true")

        async def write() -> None:
            for _ in range(12):
                assert sum((await ns.write_partitions(EVENTS)).values()) == EVENTS.num_rows

        await asyncio.gather(write(), drop())
        await ns.write_partitions(EVENTS)
        assert set(await ids(ns)) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("by", "schema", "message"),
    [
        *((it, SCHEMA, "must be a list of partition fields") for it in (None, "country", [3])),
        (["c"], {"c": pa.string()}, "schema dict: must be a pyarrow.Schema"),
        (["c"], pa.schema({"c": pa.string(), "a.b": pa.string()}), "a.b"),
        (["c"], pa.schema({"c": pa.string(), "": pa.string()}), "a name must not be empty"),
        (["c"], pa.schema({"c": pa.string(), "_rowid": pa.string()}), "reserved by Lance"),
        (["c"], pa.schema([pa.field("c", pa.string())] * 2), "two columns have the same name"),
    ],
    ids=range(8),
)
async def test_impossible_columns_are_refused(ns: AsyncNamespace, by: Any, schema: Any, message: str) -> None:
    await catch(err.InvalidInputError, ns.partition_by(by, schema=schema), message)


async def test_a_column_may_have_the_name_of_a_keyword(ns: AsyncNamespace) -> None:
    await ns.partition_by(["select"], schema=pa.schema({"select": pa.string(), "a b": pa.int64()}))
    await ns.write_partitions(pa.table({"select": ["x", "y"], "a b": [1, 2]}))
    assert (await ns.open_partitions("select='x'")).count_rows() == 1
    assert (await ns.open_partitions("`a b` = 2")).count_rows("`select` = 'y'") == 1


async def test_a_location_outside_of_the_root_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "events"
    async with AsyncNamespace.connect("dir", {"root": str(root)}) as ns:
        await ns.partition_by(["country"], schema=SCHEMA)
        await ns.write_partitions(EVENTS)
        lance.dataset(root / "__manifest").update({"location": "'../elsewhere'"}, where="object_type = 'table'")
        with pytest.raises(err.InvalidTableStateError, match=r"the location '../elsewhere', which has dot segments"):
            await ns.list_partitions()
