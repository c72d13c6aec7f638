"""Indexes of tables: created, listed, described, dropped; and statistics of a table's storage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async.operations import indexes
from tests.support.errors import catch
from tests.support.lake import ID, ROWS, Lake, stream

WIDE = pa.table(
    {
        "id": range(300),
        "v": pa.array([[float(n + i) for i in range(8)] for n in range(300)], pa.list_(pa.float32(), 8)),
        "text": ["a b"] * 300,
        "labels": [["x"]] * 300,
    }
)


def index(column: str, index_type: str, **options: Any) -> spec.CreateTableIndexRequest:
    return spec.CreateTableIndexRequest(id=ID, column=column, index_type=index_type, **options)


@pytest.mark.parametrize(
    ("column", "kind", "options", "index_type"),
    [
        *(("id", "btree", {"name": ""}, "BTree"), ("id", "BITMAP", {"name": "other"}, "Bitmap")),
        *(("id", "ZONE_MAP", {}, "ZoneMap"), ("id", "Bloom-Filter", {}, "BloomFilter")),
        *(("labels", "labelList", {}, "LabelList"), ("text", "NGRAM", {}, "NGram")),
        ("text", "FTS", {"with_position": True, "stem": False, "language": "German", "lower_case": True}, "Inverted"),
        ("text", "INVERTED", {"base_tokenizer": "raw", "max_token_length": 9, "ascii_folding": False}, "Inverted"),
    ],
)
async def test_scalars_are_indexed_by_types_in_any_spelling(
    here: Lake, column: str, kind: str, options: dict[str, Any], index_type: str
) -> None:
    await here.create(mode="overwrite", rows=WIDE)
    await here.ns.create_table_scalar_index(index(column, kind, **options))
    (listed,) = (await here.ns.list_table_indices(spec.ListTableIndicesRequest(id=ID))).indexes
    assert (listed.index_name, listed.columns) == (options.get("name") or f"{column}_idx", [column])
    assert (listed.index_type, listed.status, listed.num_segments) == (index_type, "SUCCEEDED", 1)
    assert (listed.num_indexed_rows, listed.num_unindexed_rows) == (300, 0)
    details = json.loads(listed.index_details or "")
    assert all(details[key] == value for key, value in options.items() if key != "name")


@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_HNSW_PQ"])
@pytest.mark.parametrize(("size", "expected"), [(2, 2), (7, 7), (24, 12), (32, 16), (34, 2)])
async def test_vectors_are_cut_finely_by_default(here: Lake, kind: str, size: int, expected: int) -> None:
    vectors = pa.array([[float(n + i) for i in range(size)] for n in range(300)], pa.list_(pa.float32(), size))
    nested = pa.StructArray.from_arrays([vectors], ["v"])
    await here.create(mode="overwrite", rows=pa.table({"v": vectors, "in": nested}))
    for column in ("v", "in.`v`"):
        await here.ns.create_table_index(index(column, kind, name="it"))
        (listed,) = (await here.ns.list_table_indices(spec.ListTableIndicesRequest(id=ID))).indexes
        assert json.loads(listed.index_details or "")["compression"]["num_sub_vectors"] == expected
        await here.ns.drop_table_index(spec.DropTableIndexRequest(id=ID, index_name="it"))


@pytest.mark.parametrize("kind", indexes.VECTOR_TYPES)
async def test_vectors_are_indexed_with_the_options_passed(here: Lake, kind: str) -> None:
    options = {"sample_rate": 100, "max_iterations": 3, "num_sub_vectors": 2, "num_bits": 4, "m": 7}
    options |= {"ef_construction": 33, "target_partition_size": 200}
    distance = {"IVF_FLAT": "Cosine"}.get(kind, "l2")
    heeded = {field: value for field, value in options.items() if field in indexes.VECTOR_TYPES[kind]}
    await here.create(mode="overwrite", rows=WIDE)
    await here.ns.create_table_index(index("v", kind.title(), distance_type=distance, **heeded))
    (listed,) = (await here.ns.list_table_indices(spec.ListTableIndicesRequest(id=ID))).indexes
    details = json.loads(listed.index_details or "")
    graph, packed, hints = details.get("hnsw", {}), details.get("compression", {}), details["runtime_hints"]
    stored = {
        "sample_rate": int(hints["lance.ivf.sample_rate"]),
        "max_iterations": int(hints["lance.ivf.max_iters"]),
        "num_sub_vectors": packed.get("num_sub_vectors"),
        "num_bits": packed.get("num_bits"),
        "m": graph.get("max_connections"),
        "ef_construction": graph.get("construction_ef"),
        "target_partition_size": details["target_partition_size"],
    }
    assert {field: stored[field] for field in heeded} == heeded
    stats = await here.ns.describe_table_index_stats(spec.DescribeTableIndexStatsRequest(id=ID, index_name="v_idx"))
    assert (stats.index_type, stats.distance_type) == (kind, distance.lower())
    assert (stats.num_indexed_rows, stats.num_unindexed_rows, stats.num_indices) == (300, 0, 1)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("IVF_FLAT", ("m", "ef_construction", "num_sub_vectors", "num_bits", "stem")),
        ("IVF_PQ", ("m", "ef_construction", "language")),
        ("IVF_SQ", ("m", "ef_construction", "num_sub_vectors", "num_bits")),
        ("IVF_RQ", ("m", "ef_construction", "num_sub_vectors")),
        ("IVF_HNSW_FLAT", ("num_sub_vectors", "num_bits")),
        ("IVF_HNSW_SQ", ("num_sub_vectors", "num_bits")),
        ("BTREE", ("m", "distance_type", "num_partitions", "with_position")),
        ("FTS", ("ef_construction", "sample_rate", "max_iterations", "target_partition_size")),
    ],
)
async def test_a_setting_that_an_index_has_not_is_refused(here: Lake, kind: str, fields: Sequence[str]) -> None:
    values: dict[str, Any] = {"distance_type": "l2", "stem": True, "language": "English", "with_position": True}
    for field in fields:
        with pytest.raises(err.InvalidInputError, match=f"^{field}: not supported by an index of type {kind}"):
            await here.ns.create_table_index(index("v", kind.lower(), **{field: values.get(field, 4)}))


async def test_indexes_are_listed_and_dropped(here: Lake) -> None:
    for column in ("text", "id"):
        await here.ns.create_table_scalar_index(index(column, "BTREE"))
    await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID), stream(ROWS))

    async def listed(**fields: Any) -> list[str]:
        page = await here.ns.list_table_indices(spec.ListTableIndicesRequest(id=ID, **fields))
        return [it.index_name for it in page.indexes]

    page = await here.ns.list_table_indices(spec.ListTableIndicesRequest(id=ID, limit=1))
    assert [it.index_name for it in page.indexes] == ["id_idx"] and page.page_token
    assert page.indexes[0].num_indexed_rows == 3 and page.indexes[0].num_unindexed_rows == 3
    assert await listed(limit=1, page_token=page.page_token) == ["text_idx"]
    assert await listed(version=1) == [] and await listed(version=2) == ["text_idx"]
    await here.ns.drop_table_index(spec.DropTableIndexRequest(id=ID, index_name="id_idx"))
    assert await listed() == ["text_idx"]
    for operation in ("describe_table_index_stats", "drop_table_index"):
        call = getattr(here.ns, operation)({"id": ID, "index_name": "no"})
        await catch(err.TableIndexNotFoundError, call, r"^Table index not found: n\$t .*no")
    for name in (None, ""):
        call = here.ns.drop_table_index(spec.DropTableIndexRequest(id=ID, index_name=name))
        await catch(err.InvalidInputError, call, r"^index_name: required")


async def test_an_index_that_cannot_be_made_is_refused(here: Lake) -> None:
    await here.ns.create_table_index(index("v", "IVF_FLAT", num_partitions=1))
    await here.ns.create_table_scalar_index(index("id", "BTREE"))
    invalid = (
        ("index", index("v", "BTREE", name="b"), r"n\$t .*BTREE/BITMAP index column v must be"),
        ("index", index("v", "HASH"), "^index_type 'HASH': must be one of IVF_FLAT, IVF_PQ.*, BTREE"),
        ("index", index("v", "IVF_FLAT", stem=True), "^stem: not supported by an index of type IVF_FLAT"),
        ("index", index("v", "IVF_FLAT", distance_type="far"), "^distance_type 'far': must be one of"),
        ("index", index("id", "IVF_FLAT"), r"n\$t .*Vector column id must be FixedSizeList"),
        ("index", index("v", "IVF_PQ", name="p", num_sub_vectors=3), "divisible by num_sub_vectors"),
        ("scalar_index", index("id", "IVF_PQ"), "^index_type 'IVF_PQ': not a scalar index; use create_table_index"),
        ("scalar_index", index("id", "HASH"), "^index_type 'HASH': must be one of BTREE, BITMAP"),
        ("scalar_index", index("id", "BTREE", m=3), "^m: not supported by an index of type BTREE"),
        ("scalar_index", index("id", "BTREE", stem=True), "^stem: not supported by an index of type BTREE"),
        ("scalar_index", index("v", "BTREE"), "BTREE/BITMAP index column v must be"),
        ("scalar_index", index("text", "FTS", language="Elvish"), "Elvish"),
    )
    exists = r"^Table index already exists: n\$t .*"
    refused: Sequence[tuple[str, spec.CreateTableIndexRequest, type[err.LanceNamespaceError], str]] = [
        ("index", index("no", "IVF_FLAT"), err.TableColumnNotFoundError, r"^Table column not found: n\$t .*\bno\b"),
        ("index", index("v", "IVF_FLAT"), err.TableIndexAlreadyExistsError, f"{exists}v_idx"),
        ("scalar_index", index("no", "BTREE"), err.TableColumnNotFoundError, r"\bno\b"),
        ("scalar_index", index("id", "BTREE"), err.TableIndexAlreadyExistsError, exists),
        *((kind, request, err.InvalidInputError, message) for kind, request, message in invalid),
    ]
    for kind, request, error, message in refused:
        await catch(error, getattr(here.ns, f"create_table_{kind}")(request), message)
    assert (await here.dataset()).version == 3


async def test_a_table_describes_its_content(here: Lake) -> None:
    for rows in (10, 20, 30, 40):
        data = pa.concat_tables([ROWS.slice(0, 1)] * rows)
        mode = "overwrite" if rows == 10 else "append"
        await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID, mode=mode), stream(data))
    await here.ns.create_table_scalar_index(index("id", "BTREE"))
    stats = await here.ns.get_table_stats(spec.GetTableStatsRequest(id=ID))
    assert (stats.num_rows, stats.num_indices, stats.fragment_stats.num_fragments) == (100, 1, 4)
    assert stats.fragment_stats.num_small_fragments == 4 and stats.total_bytes > 100 * 8
    lengths = stats.fragment_stats.lengths
    assert (lengths.min, lengths.p25, lengths.p50, lengths.p75, lengths.p99, lengths.max) == (10, 20, 30, 40, 40, 40)
    assert lengths.mean == 25
    await here.create(["n", "none"], ROWS.slice(0, 0))
    none = await here.ns.get_table_stats(spec.GetTableStatsRequest(id=["n", "none"]))
    assert (none.num_rows, none.total_bytes, none.fragment_stats.lengths.max) == (0, 0, 0)
