"""pylance on each catalog: the operations on a table."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance_namespace import DescribeTableRequest, DropTableRequest

from lance_ns_async import Call, Namespace, TableId
from tests.ecosystem.catalogs import on_each_kind
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
    assert ns.exists(id) and ns.drop_table(DropTableRequest(id=id)).location == dataset.uri
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
    response = ns.describe_table(DescribeTableRequest(id=id, load_detailed_metadata=True))
    assert response.version == opened(ns, id).version == 8
