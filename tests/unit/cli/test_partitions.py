"""The command `partitions`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lance_ns_async import Namespace
from lance_ns_async.cli.errors import Code
from tests.support.commands import Run

SCHEMA = pa.schema({"n": pa.int64(), "region": pa.string()})


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a directory that is divided into partitions, without any yet."""
    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.partition_by(["region"], schema=SCHEMA)
    return ["--impl", "dir", "-p", f"root={tmp_path}"]


def test_partitions_are_listed_by_a_condition(options: list[str], tmp_path: Path) -> None:
    result = Run("partitions", *options)
    assert (result.code, result.out) == (0, "") and "no partitions yet" in result.err
    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.write_partitions(pa.table({"n": [1, 2, 3], "region": ["EU", "US", None]}))
        (partition,) = namespace.list_partitions("region = 'EU'")
    rows = json.loads(Run("partitions", "--output", "json", *options).out)
    assert {row["values"]["region"] for row in rows} == {"EU", "US", None}
    (row,) = json.loads(Run("partitions", "region = 'EU'", "--output", "json", *options).out)
    assert row == {"values": {"region": "EU"}, "spec": 1, "id": str(partition.id), "location": partition.location}
    result = Run("partitions", "region = 'ASIA'", *options)
    assert (result.code, result.out) == (0, "") and "no partition may have such rows" in result.err


def test_errors_of_conditions_and_catalogs_are_told(options: list[str], tmp_path: Path) -> None:
    result = Run("partitions", "none = 1", *options)
    assert result.code == Code.USAGE and "No field named none" in result.err
    other = Run("partitions", "--impl", "dir", "-p", f"root={tmp_path / 'other'}")
    assert other.code != 0 and "this directory has no partitions" in other.err
