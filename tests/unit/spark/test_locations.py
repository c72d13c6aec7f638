"""Locations as values: looked up, selected, pickled and printed, with and without their secrets."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import NamespaceId, Table, TableId
from lance_ns_async.spark import Location, Locations, PrefetchReport, Problem
from lance_ns_async.storage.datasets import Details

SCHEMA = pa.schema([("id", pa.int64()), pa.field("v", pa.list_(pa.float32(), 4))])
SECRETS = {"aws_secret_access_key": "hush", "expires_at_millis": "1800000000500"}
REPORT = PrefetchReport(
    2,
    missing=(Problem(TableId(["db", "gone"]), "it is gone"), Problem("x.*", "no table matches x.*")),
    denied=(Problem(NamespaceId(["vault"]), "no"),),
    failed=(Problem(TableId(["db", "slow"]), "too slow", attempts=4),),
    seconds=0.25,
    calls=7,
    p50=0.003,
    p95=0.009,
)


def location(*names: str) -> Location:
    table = Table(TableId(names), f"s3://lake/{names[-1]}.lance", {}, SECRETS)
    return Location.of(table, Details(version=3, schema=SCHEMA, rows=10, fragments=2, deleted_rows=0))


@pytest.fixture
def locations() -> Locations:
    bare = Location(TableId(["db", "b.v2"]), "/lake/b.lance")
    return Locations([location("db", "a"), bare, location("other", "a")], REPORT)


def test_they_are_a_mapping_in_the_order_given(locations: Locations) -> None:
    ids = [TableId(["db", "a"]), TableId(["db", "b.v2"]), TableId(["other", "a"])]
    assert list(locations) == ids and len(locations) == 3
    assert locations[ids[0]] is locations["db.a"] is locations["db$a"] is locations[["db", "a"]]
    assert locations["db$b.v2"].location == "/lake/b.lance" and TableId(["db", "nix"]) not in locations
    with pytest.raises(KeyError, match=r"db\$nix is not among these 3 locations'"):
        locations["db.nix"]


def test_what_could_not_be_resolved_is_reported_when_it_is_looked_up() -> None:
    denied = Problem(TableId(["db", "b"]), "Permission denied: no")
    searched = Problem(NamespaceId(["db", "c"]), "Namespace not found: db$c")
    locations = Locations([location("db", "a")], PrefetchReport(1, missing=(searched,), denied=(denied,)))
    with pytest.raises(KeyError, match=r"db\$b is not among these 1 locations: Permission denied: no"):
        locations["db.b"]
    with pytest.raises(InvalidInputError, match=r"select: .* locations: Permission denied: no"):
        locations.select("db.b")
    with pytest.raises(KeyError, match="locations'"):
        locations["db.c"]


@pytest.mark.parametrize("key", ["", "$", "db..a", "db.*", [], [""], ["db", 1], 1, None])
def test_what_can_be_no_id_is_not_among_them(locations: Locations, key: Any) -> None:
    assert key not in locations and locations.get(key) is None
    with pytest.raises(KeyError):
        locations[key]


def test_some_are_selected_in_the_words_of_prefetch(locations: Locations) -> None:
    assert list(locations.select("*.a")) == [TableId(["db", "a"]), TableId(["other", "a"])]
    assert list(locations.select([NamespaceId(["other"]), "db$b.v2"])) == [
        TableId(["db", "b.v2"]),
        TableId(["other", "a"]),
    ]
    assert list(locations.select("db.x*")) == [] and locations.select("db.*").report is REPORT
    with pytest.raises(InvalidInputError, match=r"db\$nix is not among these 3"):
        locations.select(["db.a", "db.nix"])


def test_no_secret_is_printed(locations: Locations) -> None:
    for text in (repr(locations), repr(locations["db.a"]), locations._repr_html_(), str(locations.with_secrets())):
        assert "hush" not in text
    assert "<td>db$a</td>" in locations._repr_html_() and "it is gone" in locations._repr_html_()
    assert repr(locations).startswith("Locations of 3 tables: resolved 2/6 in 0.2 s (p50 3 ms, p95 9 ms)")


def bare(locations: Locations) -> Locations:
    return Locations((replace(at, storage_options=None) for at in locations.values()), REPORT)


def test_a_pickle_leaves_secrets_out_and_keeps_the_rest(locations: Locations) -> None:
    pickled = pickle.dumps(locations)
    assert b"hush" not in pickled
    again = pickle.loads(pickled)
    assert again == bare(locations) and again.report == REPORT
    assert again["db.a"].schema is again["other.a"].schema
    at = locations["db.a"]
    assert pickle.loads(pickle.dumps(at)) == copy.copy(at) == replace(at, storage_options=None)
    again = pickle.loads(pickle.dumps(locations.with_secrets()))
    assert again == locations and pickle.loads(pickle.dumps(again)) == locations
    assert pickle.loads(pickle.dumps(again.select("db.a")))["db.a"].storage_options == SECRETS


def test_json_leads_back(locations: Locations) -> None:
    text = locations.to_json()
    assert "hush" not in text and Locations.from_json(text) == bare(locations)
    assert Locations.from_json(text).report == REPORT
    assert Locations.from_json(locations.to_json(secrets=True)) == locations
    result = json.loads(locations.to_json())
    assert len(result["schemas"]) == 1
    assert [table.get("schema") for table in result["tables"]] == [0, None, 0]
    assert result["tables"][1] == {"id": "db$b.v2", "names": ["db", "b.v2"], "location": "/lake/b.lance"}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"schemas": ["x"], "tables": [], "report": {}}', '{"schemas": [], "tables": [3]}']
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not output of to_json"):
        Locations.from_json(text)


def test_arrow_has_a_row_a_table(locations: Locations) -> None:
    result = locations.to_arrow()
    assert result.column_names == ["id", "names", "location", "version", "rows", "fragments", "expires_at"]
    assert result.to_pylist()[0] == {
        "id": "db$a",
        "names": ["db", "a"],
        "location": "s3://lake/a.lance",
        "version": 3,
        "rows": 10,
        "fragments": 2,
        "expires_at": datetime(2027, 1, 15, 8, 0, 0, 500_000, UTC),
    }
    assert result["version"].to_pylist() == [3, None, 3]
    options = locations.to_arrow(secrets=True)["storage_options"]
    assert options.to_pylist(maps_as_pydicts="strict") == [SECRETS, None, SECRETS]


def test_none_at_all_are_locations_too_and_one_may_be_unopened() -> None:
    none = Locations([], PrefetchReport(0))
    assert none.to_arrow().num_rows == none.to_arrow(secrets=True).num_rows == 0
    assert none.to_arrow().schema == Locations([location("t")], PrefetchReport(1)).to_arrow().schema
    assert Locations.from_json(none.to_json()) == pickle.loads(pickle.dumps(none)) == none
    at = Location.of(Table(TableId(["t"]), "/t", version=9), None)
    assert (at.version, at.rows, at.fragments, at.schema, at.expires_at) == (9, None, None, None, None)
