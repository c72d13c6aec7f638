"""pylance on each catalog: the operations on a table."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import lance
import lance_namespace
import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import Call, Namespace, TableId
from tests.ecosystem.catalogs import Catalog, on_each_kind, on_served
from tests.ecosystem.pylance_tables import MORE, ROWS, ids, opened, write


@on_each_kind
def test_a_table_lives_and_ends(ns: Namespace, home: list[str]) -> None:
    id = [*home, "t"]
    assert write(ns, id).version == 1
    assert opened(ns, id).to_table() == ROWS
    assert write(ns, id, MORE, mode="append").version == 2
    assert ids(ns, id) == [1, 2, 3, 4, 5]
    assert write(ns, id, MORE, mode="overwrite").version == 3
    assert [ids(ns, id, version) for version in (None, 1, 2)] == [[4, 5], [1, 2, 3], [1, 2, 3, 4, 5]]
    dataset = opened(ns, id)
    assert [version["version"] for version in dataset.versions()] == [1, 2, 3]
    dataset.tags.create("first", 1)
    assert ids(ns, id, "first") == [1, 2, 3]
    assert ns.exists(id) and ns.drop_table(spec.DropTableRequest(id=id)).location == dataset.uri
    assert not ns.exists(id)
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(dataset.uri)


@on_each_kind
def test_the_catalog_declares_and_describes_tables(ns: Namespace, home: list[str]) -> None:
    id = [*home, "t"]
    ns.exists(id)
    calls: list[Call] = []
    with ns.observe(calls.append):
        write(ns, id)
        # Glue also describes the namespace, and Unity checks whether another process created the same name meanwhile.
        operations = [call.operation for call in calls if call.subject == TableId(id)]
        assert operations == ["declare_table"] * (2 if ":unity:" in ns.namespace_id() else 1)
        calls.clear()
        for mode in ("append", "overwrite"):
            write(ns, id, mode=mode)
        opened(ns, id)
    assert [call.operation for call in calls] == ["describe_table"] * 3


def test_what_was_opened_goes_on_by_itself(ns: Namespace, home: list[str]) -> None:
    """Changes and their reversal are made by the dataset itself, without a call to the catalog."""
    id = [*home, "t"]
    write(ns, id)
    dataset = opened(ns, id)
    calls: list[Call] = []
    with ns.observe(calls.append):
        dataset.delete("id = 2")
        dataset.update({"name": "'z'"}, where="id = 3")
        dataset.insert(MORE)
        dataset.merge_insert("id").when_matched_update_all().execute(pa.table({"id": [4], "name": ["w"]}))
        dataset.add_columns({"double": "id * 2"})
        dataset.create_scalar_index("id", "BTREE")
        assert dataset.to_table(filter="id = 4").num_rows == 1
    assert calls == []
    assert sorted(opened(ns, id).to_table().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "name": "a", "double": 2},
        {"id": 3, "name": "z", "double": 6},
        {"id": 4, "name": "w", "double": 8},
        {"id": 5, "name": "e", "double": 10},
    ]
    dataset.checkout_version(1).restore()
    assert opened(ns, id).to_table() == ROWS
    response = ns.describe_table(spec.DescribeTableRequest(id=id, load_detailed_metadata=True))
    assert response.version == opened(ns, id).version == 8


THREADS = 12


def test_many_threads_of_one_namespace(ns: Namespace, home: list[str]) -> None:
    shared = [*home, "shared"]
    write(ns, shared)
    start = threading.Barrier(THREADS)

    def use(number: int) -> list[int]:
        start.wait()
        own = [*home, f"own{number}"]
        write(ns, own, pa.table({"id": [number]}))
        write(ns, own, pa.table({"id": [-number]}), mode="append")
        assert ids(ns, shared) == [1, 2, 3]
        return ids(ns, own)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(use, range(THREADS))) == [[-number, number] for number in range(THREADS)]
    assert len(list(ns.iter_tables(home))) == 1 + THREADS


def test_rows_that_come_from_another_table_while_they_are_written(ns: Namespace, home: list[str]) -> None:
    """The writer reads rows in a thread of Rust, in which their source calls the namespace."""
    source, target = [*home, "source"], [*home, "target"]
    write(ns, source)
    asked_by: list[threading.Thread] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            asked_by.append(threading.current_thread())
            yield from opened(ns, source).to_batches()

    write(ns, target, pa.RecordBatchReader.from_batches(ROWS.schema, rows()))
    assert ids(ns, target) == sorted([1, 2, 3] * 3)
    assert threading.main_thread() not in asked_by


def test_a_function_over_rows_may_call_the_namespace(ns: Namespace, home: list[str]) -> None:
    """It runs in the threads of Lance's runtime, in which pylance itself cannot open a dataset."""
    id, other = [*home, "t"], [*home, "other"]
    write(ns, id)
    write(ns, other, MORE)

    @lance.batch_udf(output_schema=pa.schema([("others", pa.int64())]))
    def others(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert ns.exists(other) and ns.describe_table(spec.DescribeTableRequest(id=other)).location
        result = ns.count_table_rows(spec.CountTableRowsRequest(id=other)).count
        return pa.RecordBatch.from_pydict({"others": [result] * batch.num_rows})

    opened(ns, id).add_columns(others)
    assert opened(ns, id).to_table()["others"].to_pylist() == [2, 2, 2]


@on_each_kind
def test_a_missing_table_or_namespace_is_missing_whatever_is_wanted_of_it(ns: Namespace, home: list[str]) -> None:
    id = [*home, "t"]
    message = rf"^Table not found: {'[$]'.join(id)} \("
    with pytest.raises(err.TableNotFoundError, match=message):
        opened(ns, id)
    for mode in ("append", "overwrite"):
        with pytest.raises(err.TableNotFoundError, match=message):
            write(ns, id, mode=mode)
    assert not ns.exists(id)
    missing = [*home[:-1], "nowhere"]
    with pytest.raises(err.NamespaceNotFoundError, match=rf"^Namespace not found: {'[$]'.join(missing)} \("):
        write(ns, [*missing, "t"])
    with pytest.raises((err.NamespaceNotFoundError, err.TableNotFoundError), match=r" not found: (\w+\$)*nowhere"):
        opened(ns, [*missing, "t"])


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_what_was_declared_and_never_written_can_be_written_but_not_made_again(
    ns: Namespace, home: list[str], mode: str
) -> None:
    id = [*home, "t"]
    ns.declare_table(spec.DeclareTableRequest(id=id))
    with pytest.raises(ValueError, match=r"Dataset at path .* was not found"):
        opened(ns, id)
    with pytest.raises(err.TableAlreadyExistsError):
        write(ns, id)
    write(ns, id, mode=mode)
    assert ids(ns, id) == [1, 2, 3]


def test_a_create_that_fails_leaves_the_table_declared(ns: Namespace, home: list[str]) -> None:
    id = [*home, "t"]

    def broken() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise OSError("the source is gone")

    for again in ("overwrite", "create"):
        with pytest.raises(OSError, match="the source is gone"):
            write(ns, id, pa.RecordBatchReader.from_batches(ROWS.schema, broken()))
        assert ns.exists(id)
        with pytest.raises(ValueError, match=r"Dataset at path .* was not found"):
            opened(ns, id)
        with pytest.raises(err.TableAlreadyExistsError):
            write(ns, id)
        if again == "create":
            ns.deregister_table(spec.DeregisterTableRequest(id=id))
        write(ns, id, mode=again)
        assert ids(ns, id) == [1, 2, 3]
        ns.drop_table(spec.DropTableRequest(id=id))


VECTORS = pa.table({"id": [1, 2], "v": pa.array([[0.0, 1.0], [5.0, 5.0]], pa.list_(pa.float32(), 2))})


@on_served
def test_a_served_table_lives_and_ends(rest: Mapping[str, str], catalog: Catalog) -> None:
    n = [*catalog.above, "served"]
    t = [*n, "t"]
    ns: Any = lance_namespace.connect("rest", {**rest})
    ns.create_namespace(spec.CreateNamespaceRequest(id=n))
    write(ns, t, VECTORS)
    assert ns.list_tables(spec.ListTablesRequest(id=n)).tables == ["t"]
    location: str = ns.describe_table(spec.DescribeTableRequest(id=t)).location
    place = Path(urlsplit(location).path)
    assert place.is_dir()
    write(ns, t, VECTORS, mode="append")
    assert ids(ns, t) == [1, 1, 2, 2]
    assert ns.count_table_rows(spec.CountTableRowsRequest(id=t)).count == 4
    assert opened(ns, t).to_table(nearest={"column": "v", "q": [4.0, 4.0], "k": 2})["id"].to_pylist() == [2, 2]
    ns.drop_table(spec.DropTableRequest(id=t))
    assert not place.exists()
    with pytest.raises(err.TableNotFoundError, match=r"Table not found: .*served\$t"):
        lance.dataset(namespace_client=ns, table_id=t)
    ns.drop_namespace(spec.DropNamespaceRequest(id=n))
