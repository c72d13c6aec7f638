"""Searches for tables by their content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import Namespace
from lance_ns_async.fleet import Conditions, Report, sync


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.0] * 24, pa.float32()), 8)
    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.write(["vectors"], pa.table({"id": range(3), "vec": vectors}))
        namespace.write(["indexed"], pa.table({"id": range(5)})).create_scalar_index("id", "BTREE")
        namespace.write(["stale"], pa.table({"id": range(5)})).create_scalar_index("id", "BTREE")
        namespace.write(["stale"], pa.table({"id": range(2)}), mode="append")
        namespace.declare_table({"id": ["declared"]})
        yield namespace


def names(report: Report) -> list[str]:
    assert not report.problems
    return [str(row.id) for row in report.rows]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, ["indexed", "stale", "vectors"]),
        (Conditions(columns=["vec:fixed_size_list[8]"]), ["vectors"]),
        (Conditions(columns=["vec:vector<float>[8]"]), ["vectors"]),
        (Conditions(columns=[":vector[9]"]), []),
        (Conditions(columns=["id:int64"], max_rows=5), ["indexed", "vectors"]),
        *((Conditions(columns=["id:int32"]), []), (Conditions(min_rows=6), ["stale"])),
        *((Conditions(min_size="1GB"), []), (Conditions(older_than="1d"), [])),
        (Conditions(newer_than="1d"), ["indexed", "stale", "vectors"]),
        *((Conditions(min_versions=3), ["stale"]), (Conditions(index=["id"]), ["indexed", "stale"])),
        *((Conditions(no_index=["id"]), ["vectors"]), (Conditions(no_index=["vec"]), ["vectors"])),
        *((Conditions(stale_index=["*"]), ["stale"]), (Conditions(properties={"owner": "ann"}), [])),
    ],
)
def test_conditions_select_tables(namespace: Namespace, where: Conditions | None, expected: list[str]) -> None:
    assert names(sync.find(namespace, "**", where)) == expected


@pytest.mark.parametrize("type_", ["int46", "text64", "vector"])
def test_a_type_that_arrow_does_not_have_is_an_error(type_: str) -> None:
    with pytest.raises(InvalidInputError, match=f"columns 'id:{type_}': Arrow has no type '{type_}'; "):
        Conditions(columns=[f"id:{type_}"])
    for valid in ("float16", "string_view", "list<item: int64>", "timestamp[us]", "vector[8]"):
        Conditions(columns=[f"id:{valid}"])


def test_a_report_without_rows_says_so(namespace: Namespace) -> None:
    assert sync.find(namespace, "**", Conditions(min_rows=10**9)).line().startswith("find: no matches in ")


def test_results_are_sorted_limited_and_chosen_by_functions(namespace: Namespace) -> None:
    assert names(sync.find(namespace, "**", sort="-rows", limit=2)) == ["stale", "indexed"]
    report = sync.find(namespace, "**", lambda facts: facts.rows == 3)
    assert names(report) == ["vectors"]
    assert "vectors  rows 3, size " in repr(report) and "vectors" in report._repr_html_()
    assert report.rows[0].fields["rows"] == 3 and report.counters == {"tables": 4, "without data": 1}
    assert report.to_arrow().num_rows == 1 and '"rows": 3' in report.to_json()


@pytest.mark.parametrize("text", ["30", "d", "30y", "9" * 20 + "w"])
def test_invalid_ages_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="older_than"):
        Conditions(older_than=text)


def test_invalid_sort_keys_and_limits_are_refused(namespace: Namespace) -> None:
    with pytest.raises(InvalidInputError, match="sort 'age'"):
        sync.find(namespace, "**", sort="age")
    with pytest.raises(InvalidInputError, match="limit 0"):
        sync.find(namespace, "**", limit=0)


def test_damaged_tables_are_failures_beside_the_matches(namespace: Namespace, tmp_path: Path) -> None:
    for manifest in (tmp_path / "stale.lance" / "_versions").iterdir():
        manifest.write_bytes(b"no manifest")
    report = sync.find(namespace, "**")
    assert [(str(row.id), row.outcome) for row in report.rows] == [
        ("indexed", "match"),
        ("vectors", "match"),
        ("stale", "failed"),
    ]
