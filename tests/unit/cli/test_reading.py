"""The command `search`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lance_ns_async import Namespace
from tests.support.commands import Run


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a catalog with three tables of vectors, and one without."""
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as namespace:
        namespace.create_namespace("s")
        for number in range(3):
            vectors = pa.array([[number, 0.0], [0.0, number]], pa.list_(pa.float32(), 2))
            namespace.write(["s", f"t{number}"], pa.table({"id": [1, 2], "word": ["cat", "dog"], "vector": vectors}))
        namespace.create_table_scalar_index("s.t2", column="word", index_type="FTS")
        namespace.write(["s", "other"], pa.table({"id": [1]}))
    return ["--impl", "dir", "-p", f"root={tmp_path / 'lake'}"]


def test_the_best_rows_of_all_tables_are_shown(options: list[str], tmp_path: Path) -> None:
    result = Run("search", "s.t*", "--nearest", "1,0", "-n", "2", "-c", "id", "-o", "json", *options)
    assert result.code == 0 and "3 tables searched, 0 errors" in result.err
    assert json.loads(result.out) == [
        {"id": 1, "_distance": 0.0, "_table": "s$t1"},
        {"id": 1, "_distance": 1.0, "_table": "s$t0"},
    ]
    out = tmp_path / "rows.parquet"
    assert Run("search", "s.t2", "--text", "dog", "-c", "word", "--out", str(out), *options).code == 0
    assert pq.read_table(out)["word"].to_pylist() == ["dog"]
    assert (
        Run("search", "s.t*", "--nearest", "[1, .0]", "-n", "2", "-c", "id", "-o", "json", *options).out == result.out
    )
    filtered = Run("search", "s.t*", "--nearest", "1,0", "-f", "id = 2", "-n", "1", "-o", "json", *options)
    assert [row["id"] for row in json.loads(filtered.out)] == [2]


def test_a_table_that_cannot_be_searched_has_an_exit_code(options: list[str]) -> None:
    result = Run("search", "s.*", "--nearest", "1,0", *options)
    assert result.code == 1 and "s$t1" in result.out and "s$other" in result.err
    missing = Run("search", "s.none", "--nearest", "1,0", *options)
    assert missing.code == 1 and "Table not found: s$none" in missing.err
    assert Run("search", "s.x*", "--nearest", "1,0", *options).code == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--nearest or --text: required"),
        (["--nearest", "1,x"], "--nearest: must be numbers"),
        (["--nearest", "1,0", "--within", "0"], "--within 0.0"),
        (["--nearest", "1,0", "-n", "0"], "--limit"),
    ],
)
def test_invalid_options_are_usage_errors(options: list[str], arguments: list[str], message: str) -> None:
    result = Run("search", "s.t*", *arguments, *options)
    assert result.code == 2 and not result.out and message in result.err
