"""The commands that change tables and namespaces, and those that show what a table has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lance_ns_async import Namespace
from lance_ns_async.cli.errors import Code
from tests.fakes.iceberg import FakeIceberg
from tests.support.commands import Run
from tests.unit.cli.test_app import at

ROWS = pa.table({"id": [1, 2, 3], "name": ["ann", "bob", "cid"], "price": [2.5, 3.5, 4.5]})
VECTORS = pa.table({"id": [1, 2], "vector": pa.array([[0.1] * 8, [0.9] * 8], pa.list_(pa.float32(), 8))})


@pytest.fixture
def lake(tmp_path: Path) -> Sequence[str]:
    """Provides the options of a catalog with the tables `shop$orders` and `shop$images`."""
    root = tmp_path / "lake"
    with Namespace.connect("dir", {"root": str(root)}) as catalog:
        catalog.create_namespace({"id": ["shop"]})
        catalog.write(["shop", "orders"], ROWS)
        catalog.write(["shop", "images"], VECTORS)
    return at(root)


@pytest.mark.parametrize("before", [True, False])
def test_the_options_of_the_catalog_stand_before_or_after_the_command(lake: Sequence[str], before: bool) -> None:
    command = ["count", "shop.orders"]
    run = Run(*lake, *command) if before else Run(*command, *lake)
    assert (run.code, run.out, run.err) == (0, "3\n", "")
    assert Run(*lake[:2], *command, *lake[2:]).out == "3\n"
    assert Run("-i", "glue", *command, *lake).out == "3\n"


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_a_file_becomes_a_table(lake: Sequence[str], tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"rows.{suffix}"
    match suffix:
        case "parquet":
            pq.write_table(ROWS, file)
        case "csv":
            file.write_text("id,name,price\n1,ann,2.5\n2,bob,3.5\n3,cid,4.5\n")
        case _:
            file.write_text("\n".join(map(json.dumps, ROWS.to_pylist())))
    run = Run("create", "shop.new", str(file), *lake)
    assert (run.code, run.out) == (0, "wrote version 1 of shop$new, which has 3 rows\n")
    assert json.loads(Run("head", "shop.new", "-o", "json", *lake).out) == ROWS.to_pylist()
    again = Run("create", "shop.new", str(file), *lake)
    assert again.code == 1 and "shop$new" in again.err
    for mode, version, rows in (("append", 2, 6), ("overwrite", 3, 3)):
        written = f"version {version} of shop$new, which has {rows} rows"
        assert written in Run("create", "shop.new", str(file), "--mode", mode, *lake).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.csv"], "gone.csv: there is no such file"),
        (["rows.xlsx"], "rows.xlsx: unknown suffix; use one of .parquet"),
        (["broken.parquet"], "broken.parquet: cannot be read"),
        (["--mode", "append"], "--mode append: requires a file"),
        (["broken.parquet", "--location", "x"], "--location: only without a file"),
    ],
)
def test_a_bad_file_creates_nothing(
    lake: Sequence[str], tmp_path: Path, arguments: Sequence[str], message: str
) -> None:
    (tmp_path / "broken.parquet").write_text("no parquet")
    run = Run("create", "shop.new", *arguments, *lake)
    assert run.code == 2 and message in run.err
    assert sorted(Run("ls", "shop", *lake).lines) == ["shop$images", "shop$orders"]


TYPED = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "zip": ["001", "", None],
        "price": pa.array([1.5, float("nan"), None], pa.float32()),
        "sum": pa.array([Decimal("1.20"), None, Decimal("-99999999999999.99")], pa.decimal128(38, 2)),
        "at": pa.array([datetime(2024, 1, 1, 1, 2, 3, 400), None, datetime(2024, 1, 1)], pa.timestamp("us")),
        "day": pa.array([date(2024, 1, 1), None, None]),
        "data": pa.array([b"\x00\xff", b"", None]),
        "tags": pa.array([["a"], [], None], pa.list_(pa.string())),
        "vector": pa.array([[0.5, 1], None, [2, 3]], pa.list_(pa.float32(), 2)),
        "at_home": pa.array([{"n": 1}, None, {"n": None}], pa.struct({"n": pa.int16()})),
    }
)


@pytest.mark.parametrize("suffix", ["csv", "json", "ndjson", "parquet"])
def test_rows_survive_a_file(lake: Sequence[str], tmp_path: Path, suffix: str) -> None:
    file = str(tmp_path / f"rows.{suffix}")
    # In JSON, NaN is a text.
    rows = TYPED.drop_columns("price") if "json" in suffix else TYPED
    with Namespace.connect("dir", {"root": lake[-1].removeprefix("root=")}) as catalog:
        catalog.write(["shop", "typed"], rows)
        assert Run("query", "shop.typed", "--out", file, *lake).code == 0
        assert Run("create", "shop.typed", file, "--mode", "append", *lake).code == 0
        assert Run("create", "shop.other", file, "--schema-of", "shop.typed", *lake).code == 0
        assert Run("create", "shop.plain", file, *lake).code == 0
        plain, other, typed = (catalog.open(f"shop.{it}").to_table() for it in ("plain", "other", "typed"))
    assert other.schema.equals(rows.schema) and repr(other.to_pylist()) == repr(rows.to_pylist())
    assert repr(typed.to_pylist()) == repr(rows.to_pylist() * 2)
    assert [plain[name].null_count for name in rows.schema.names] == [it.null_count for it in rows.columns]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "id,vector\n5000000000,\n", "value '5000000000'"),
        ("a.csv", 'id,vector\n1,"[1.0]"\n', "column 'vector' is string, which does not become fixed_size_list"),
        ("a.json", '{"id": 5000000000}', "column 'id' is int64, which does not become int32 (Integer value 5000000000"),
        ("a.json", '{"price": 1e300}', "column 'price' is double, which does not become float (a number is too large)"),
        ("a.json", '[{"sum": 1}, {"sum": 1.234}]', "1.234 requires scale 3"),
        ("a.json", '{"data": "%"}', "column 'data' is string, which does not become binary"),
    ],
)
def test_a_value_that_does_not_fit_is_not_appended(
    lake: Sequence[str], tmp_path: Path, name: str, text: str, message: str
) -> None:
    with Namespace.connect("dir", {"root": lake[-1].removeprefix("root=")}) as catalog:
        catalog.write(["shop", "typed"], TYPED)
    (tmp_path / name).write_text(text)
    run = Run("create", "shop.typed", str(tmp_path / name), "--mode", "append", *lake)
    assert run.code == 2 and message in run.err and Run("count", "shop.typed", *lake).out == "3\n"


def test_existing_data_is_registered_with_properties(tmp_path: Path) -> None:
    with FakeIceberg() as catalog:
        options = ["-i", "iceberg", "-p", f"endpoint={catalog.endpoint}"]
        location = str(tmp_path / "data")
        lance.write_dataset(ROWS, location)
        assert Run("ns", "create", "shop", "--set", "owner=ann", *options).out == "created shop\n"
        assert json.loads(Run("ns", "describe", "shop", "-o", "json", *options).out)["properties"]["owner"] == "ann"
        run = Run("register", "shop.orders", location, "--set", "team=sales", *options)
        assert (run.code, run.out) == (0, f"registered shop$orders at {location}\n")
        assert Run("register", "shop.orders", location, *options).code == 1
        assert Run("register", "shop.orders", location, "--overwrite", *options).code == 0
        assert Run("rename", "shop.orders", "sales", *options).out == "renamed shop$orders to shop$sales\n"
        assert Run("count", "shop.sales", *options).out == "3\n"
        assert Run("deregister", "shop.sales", *options).out == "deregistered shop$sales\n"
        assert Run("ls", "shop", *options).out == "" and lance.dataset(location).count_rows() == 3


def test_a_drop_shows_asks_and_deletes(lake: Sequence[str]) -> None:
    run = Run("drop", "shop.orders", *lake)
    assert run.code == 2 and "--yes" in run.err and "--dry-run" in run.err
    run = Run("drop", "shop.orders", "--dry-run", *lake)
    assert run.code == 0 and run.out.startswith("would drop shop$orders at ")
    assert Run("count", "shop.orders", *lake).out == "3\n"
    run = Run("drop", "shop.orders", "shop.gone", "shop.images", "--yes", *lake)
    assert run.code == 1 and run.lines == ["dropped shop$orders", "dropped shop$images"] and "shop$gone" in run.err
    assert Run("drop", "shop.orders", "-y", *lake).code == 3 and Run("ls", "shop", *lake).out == ""


def test_namespaces_are_created_listed_and_dropped(lake: Sequence[str]) -> None:
    assert Run("ns", "create", "shop.eu", *lake).out == "created shop$eu\n"
    assert Run("ns", "create", "shop.eu", *lake).code == 1
    assert Run("ns", "create", "shop.eu", "--exist-ok", *lake).code == 0
    assert Run("ns", "ls", *lake).out == "shop\n" and Run("ns", "ls", "-r", *lake).out == "shop\nshop$eu\n"
    assert Run("ns", "drop", "shop.eu", *lake).out == "dropped shop$eu\n"
    assert Run("ns", "drop", "shop", *lake).code == 1
    assert "this catalog drops empty namespaces only" in Run("ns", "drop", "shop", "--cascade", *lake).err
    unity = ("-i", "unity", "-p", "endpoint=http://127.0.0.1:9", "-p", "catalog=main")
    run = Run("ns", "drop", "shop", "--cascade", *unity)
    assert run.code == 2 and "--yes" in run.err and "lance-ns ls -r shop" in run.err and "--dry-run" not in run.err
    assert Run("ns", "describe", "gone", *lake).code == 3


def test_what_a_table_consists_of(lake: Sequence[str], tmp_path: Path) -> None:
    assert json.loads(Run("schema", "shop.images", "-o", "json", *lake).out) == [
        {"column": "id", "type": "int64", "nullable": True},
        {"column": "vector", "type": "fixed_size_list<item: float>[8]", "nullable": True},
    ]
    for command, nothing in (("tag", "no tags on"), ("index", "no indexes on"), ("branch", "no branches of")):
        run = Run(command, "list", "shop.orders", "--json", *lake)
        assert (run.code, run.out) == (0, "[]\n") and f"{nothing} shop$orders" in run.err
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as catalog:
        catalog.write(["shop", "orders"], ROWS, mode="append")
    assert Run("tag", "create", "shop.orders", "first", "--version", "1", *lake).code == 0
    assert Run("index", "create", "shop.orders", "id", *lake).code == 0
    versions = json.loads(Run("versions", "shop.orders", "-o", "json", *lake).out)
    operations = [(row["version"], row["operation"], row["rows"]) for row in versions]
    assert operations == [(3, "CreateIndex", 6), (2, "Append", 6), (1, "Overwrite", 3)]
    assert len(Run("versions", "shop.orders", "-n", "2", "-o", "plain", *lake).lines) == 2
    for alias in (["tag", "list"], ["tags"]):
        assert Run(*alias, "shop.orders", "-o", "csv", *lake).out == "tag,version,branch\nfirst,1,\n"
    [index] = json.loads(Run("index", "list", "shop.orders", "-o", "json", *lake).out)
    assert (index["columns"], index["rows"], index["rows without"]) == ("id", 6, 0)
    assert len(json.loads(Run("head", "shop.orders", "--version", "first", "-o", "json", *lake).out)) == 3
    assert len(json.loads(Run("query", "shop.orders", "--version", "2", "-o", "json", *lake).out)) == 6
    assert Run("count", "shop.orders", "--version", "1", *lake).out == "3\n"
    assert "did you mean 'first'?" in Run("count", "shop.orders", "--version", "first2", *lake).err


@pytest.mark.parametrize(
    ("arguments", "done"),
    [
        (["tag", "create", "TABLE", "now"], "created tag now of shop$orders: version 2"),
        (["tag", "move", "TABLE", "v1", "--version", "2"], "moved tag v1 of shop$orders: version 2"),
        (
            ["branch", "create", "TABLE", "trial", "--version", "v1"],
            "created branch trial of shop$orders from version 1 of main",
        ),
        (["restore", "TABLE", "v1"], "restored version 1 of shop$orders; its version is now 3"),
        (["index", "create", "TABLE", "name", "--type", "FTS", "--set", "stem=false"], "created an index of type FTS"),
        (["tag", "delete", "TABLE", "v1"], "deleted tag v1 of shop$orders"),
        (["branch", "delete", "TABLE", "old"], "deleted branch old of shop$orders"),
        (["index", "drop", "TABLE", "id_idx"], "dropped index id_idx of shop$orders"),
        (["delete", "TABLE", "id > 1"], "deleted 2 rows of shop$orders; its version is now 3"),
        (
            ["update", "TABLE", "id=id+5", "name='=x'", "--where", "id > 1"],
            "updated 2 rows of shop$orders; its version",
        ),
    ],
)
def test_parts_and_rows_of_a_table_are_changed(lake: Sequence[str], arguments: Sequence[str], done: str) -> None:
    with Namespace.connect("dir", {"root": lake[-1].removeprefix("root=")}) as catalog:
        catalog.create_table_scalar_index("shop.orders", column="id", index_type="BTREE")
        catalog.create_table_tag("shop.orders", tag="v1", version=1)
        catalog.create_table_branch("shop.orders", name="old")
    command = ["shop.orders" if it == "TABLE" else it for it in arguments]
    if {"delete", "drop", "update"} & set(command):
        refused = Run(*command, *lake)
        assert refused.code == 2 and "Confirm it with --yes, or look first with " in refused.err
        command.append("--yes")
    run = Run(*command, *lake)
    assert run.code == 0 and run.out.startswith(done)
    rows = json.loads(Run("query", "shop.orders", "-f", "id > 1", "--json", *lake).out)
    match command[0]:
        case "delete":
            assert rows == []
        case "update":
            assert [(row["id"], row["name"]) for row in rows] == [(7, "=x"), (8, "=x")]
    if command[0] in ("delete", "update"):
        assert Run(*command, "--dry-run", *lake).out.startswith(f"would {command[0]} {len(rows)} rows of ")


def test_a_branch_is_read_and_changed(lake: Sequence[str], tmp_path: Path) -> None:
    assert Run("branch", "create", "shop.orders", "trial", *lake).code == 0
    trial = ["shop.orders", "--branch", "trial"]
    assert Run("delete", *trial, "id = 1", "-y", *lake).out == "deleted 1 row of shop$orders; its version is now 2\n"
    unmatched = Run("delete", *trial, "id = 1", "-y", *lake)
    assert unmatched.out == "no row of shop$orders matches; nothing was changed\n"
    assert "updated 2 rows" in Run("update", *trial, "name='x'", "-y", *lake).out
    assert Run("tag", "create", *trial, "t", *lake).out == "created tag t of shop$orders: version 3 of branch trial\n"
    assert "restored version 2 of" in Run("restore", *trial, "2", *lake).out
    versions = json.loads(Run("versions", *trial, "--json", *lake).out)
    assert [row["operation"] for row in versions] == ["Restore", "Update", "Delete", "Clone"]
    (tmp_path / "rows.csv").write_text("id,name,price\n7,ann,1.5\n")
    assert Run("create", *trial, str(tmp_path / "rows.csv"), "--mode", "append", *lake).code == 0
    for command in ("head", "query"):
        assert [it["id"] for it in json.loads(Run(command, *trial, "--json", *lake).out)] == [2, 3, 7]
    assert len(Run("schema", *trial, "-o", "plain", *lake).lines) == 3
    place = ["shop.orders", "--version", "t", "--json"]
    described = json.loads(Run("describe", *place, *lake).out)
    assert (described["version"], described["rows"], "stats" in described) == (3, 2, False)
    assert {"columns", "stats", "schema"} <= set(json.loads(Run("describe", *place, "-d", *lake).out))
    assert Run("count", *trial, *lake).out == "3\n" and Run("count", *place[:3], *lake).out == "2\n"
    assert "it is a branch: use --branch trial" in Run("head", "shop.orders", "--version", "trial", *lake).err
    assert "omit --branch" in Run("head", "shop.orders", "--version", "t", "--branch", "main", *lake).err


def test_rows_are_counted_filtered_and_searched(lake: Sequence[str], tmp_path: Path) -> None:
    assert Run("count", "shop.orders", "--filter", "price > 3", *lake).out == "2\n"
    run = Run("query", "shop.orders", "-f", "price > 3", "-c", "id, price", "-o", "csv", *lake)
    assert run.out == "id,price\n2,3.5\n3,4.5\n"
    assert "the index has no rows yet" in Run("index", "create", "shop.images", "vector", *lake).err
    vector = tmp_path / "vector.json"
    vector.write_text(json.dumps([0.8] * 8))
    for nearest in (f"@{vector}", ",".join(["0.8"] * 8)):
        run = Run("query", "shop.images", "--nearest", nearest, "-n", "1", "-o", "json", *lake)
        assert [row["id"] for row in json.loads(run.out)] == [2]
    assert "[0.9, 0.9, 0.9, 0.9, ...: 8]" in Run("head", "shop.images", *lake).out
    out = tmp_path / "rows.parquet"
    assert Run("head", "shop.orders", "-n", "2", "--out", str(out), *lake).code == 0
    assert pq.read_table(out).to_pylist() == ROWS.to_pylist()[:2]
    row = {"id": "shop$orders", "names": ["shop", "orders"], "rows": 3}
    assert json.loads(Run("count", "shop.orders", "--json", *lake).out) == [row]
    assert Run("count", "shop.orders", "-o", "csv", *lake).lines == ["id,rows", "shop$orders,3"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["head", "shop.orders", "-c", "prize"], 2, "--columns prize: no such column; the table has id, name, price"),
        (["query", "shop.images", "--nearest", "1,x"], 2, "--nearest: must be numbers"),
        (["query", "shop.images", "--nearest", "@gone.json"], 2, "--nearest @gone.json"),
        (["query", "shop.images", "--nearest", "1", "--text", "a"], 2, "use one of them"),
        (["count", "shop.orders", "-f", "prize > 1"], 2, "prize"),
        (["count", "shop.gone"], 3, "shop$gone"),
        (["find", "**", "--older-than", "soon"], 2, "soon"),
        (["find", "**", "--property", "owner"], 2, "must be KEY=VALUE"),
        (["find", "**", "--sort", "age"], 2, "age"),
        (["search", "shop.*"], 2, "--nearest or --text: required"),
        (["search", "shop.*", "--nearest", "1,x"], 2, "--nearest: must be numbers"),
        (["search", "shop.*", "--nearest", "1,0", "--within", "0"], 2, "--within 0.0"),
        (["search", "shop.*", "--nearest", "1,0", "-n", "0"], 2, "--limit"),
        (["index", "create", "shop.images", "vector", "--set", "num_bit=4"], 2, "did you mean num_bits?"),
        *(
            ([*it, "shop.orders", "gone"], 3, "gone")
            for it in (["index", "drop"], ["tag", "delete"], ["branch", "delete"])
        ),
        (["delete", "shop.orders", "--where", "id = 1"], 2, "the filter is an argument, without an option"),
        (["query", "shop.orders", "--text", "a"], 2, "lance-ns index create TABLE COLUMN --type FTS"),
        (["find", "**", "--column", "a:decimal"], 2, "did you mean 'decimal128(12, 2)'?"),
        (["update", "shop.orders", "id", "-y"], 2, "must be COLUMN=SQL"),
        (["maintain", "**", "--older-than", "soon"], 2, "soon"),
        (["maintain", "**", "--master", "local[2]"], 2, ""),
        (["maintain", "**", "--conf", "a", "--engine", "spark"], 2, ""),
        (["maintain", "**", "--no-compact", "--no-index", "--no-cleanup"], 2, ""),
    ],
)
def test_a_wrong_question_is_explained(lake: Sequence[str], arguments: Sequence[str], code: int, message: str) -> None:
    run = Run(*arguments, *lake)
    assert (run.code, run.out) == (code, "") and message in run.err and len(run.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        *((it, "did you mean shop?") for it in (["ls", "shob"], ["ns", "describe", "shob"])),
        *((it, "did you mean shop$orders?") for it in (["describe", "shop.order"], ["head", "shob.orders"])),
        (["count", "shop"], "it is a namespace: list its tables with lance-ns ls shop, or use 'shop.**'"),
        (["ls", "shop.orders"], "it is a table: see lance-ns describe 'shop$orders'"),
        (["drop", "-y", "shop.imagez"], "did you mean shop$images?"),
    ],
)
def test_a_near_id_is_suggested(lake: Sequence[str], arguments: Sequence[str], suggestion: str) -> None:
    run = Run(*arguments, *lake)
    assert run.code == 3 and run.err.endswith(f"; {suggestion}\n")
    assert "did you mean" not in Run(arguments[0], "entirely.different", *lake).err


@pytest.mark.parametrize("command", [["ls"], ["ls", "-r"], ["ls", "-n"], ["ns", "ls"]])
def test_a_directory_that_does_not_exist_is_no_empty_catalog(command: Sequence[str], tmp_path: Path) -> None:
    run = Run(*command, *at(tmp_path / "gone"))
    assert (run.code, run.out) == (2, "") and "gone: there is no such directory; " in run.err
    (tmp_path / "gone").mkdir()
    assert Run(*command, *at(tmp_path / "gone")).code == 0


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        *((["ls", "sh*.or*"], ["shop$orders"]), (["ls", "**"], ["shop$images", "shop$orders"])),
        *((["ls", "*.orders"], ["shop$orders"]), (["ls", "-n", "*"], ["shop"]), (["ns", "ls", "s?op"], ["shop"])),
        (["count", "*.ord*"], ["3"]),
        (["resolve", "sh*.or*", "--no-pin", "-q", "-o", "csv"], None),
        (["deregister", "shop.*", "--dry-run"], None),
        (["drop", "sh*.*", "--yes"], ["dropped shop$images", "dropped shop$orders"]),
    ],
)
def test_patterns_name_tables(lake: Sequence[str], command: Sequence[str], expected: Sequence[str] | None) -> None:
    run = Run(*command, *lake)
    assert (run.code, run.err) == (0, "")
    assert expected is None or run.lines == expected


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["ls", "shop.x*"], 0, "no table matches 'shop.x*'"),
        (["ls", "-n", "x*"], 0, "no namespace matches 'x*'"),
        (["head", "shop.x*"], 3, "no table matches 'shop.x*'"),
        (["head", "shop.*"], 2, "'shop.*' matches 2 tables ('shop$images', 'shop$orders'); use the id of one"),
        (["drop", "shop.*"], 2, "Delete the data of 2 tables"),
        (["drop", "shop.x*", "--yes"], 3, "no table matches 'shop.x*'"),
        (["drop", "gone.*", "--yes"], 3, "gone"),
    ],
)
def test_bad_patterns_change_nothing(lake: Sequence[str], command: Sequence[str], code: int, message: str) -> None:
    run = Run(*command, *lake)
    assert run.code == code and message in run.err and len(run.err.splitlines()) == 1
    assert Run("ls", "shop", *lake).lines == ["shop$images", "shop$orders"]


def test_a_file_gets_all_rows(lake: Sequence[str], tmp_path: Path) -> None:
    with Namespace.connect("dir", {"root": lake[-1].removeprefix("root=")}) as catalog:
        catalog.write(["shop", "many"], pa.table({"id": range(100)}))
    assert "--limit shows more" not in Run("query", "shop.many", "-f", "id < 10", *lake).err
    shown = Run("query", "shop.many", "-f", "id < 90", *lake)
    assert len(shown.lines) == 11 and "--limit shows more" in shown.err
    written = Run("query", "shop.many", "-f", "id < 90", "--out", str(tmp_path / "o.parquet"), *lake)
    assert "wrote 90 rows to " in written.err and pq.read_table(tmp_path / "o.parquet").num_rows == 90


def test_errors_of_reads_are_explained(lake: Sequence[str]) -> None:
    run = Run("query", "shop.orders", "-f", "name = ann", *lake)
    assert run.code == 2 and "text in a filter needs single quotes" in run.err
    assert "rest properties: uri: not a URL" in Run("ls", "-i", "rest", "-p", "uri=x").err
    assert "did you mean shop$orders?" in Run("doctor", "shop.order", *lake).out
    with Namespace.connect("dir", {"root": lake[-1].removeprefix("root=")}) as catalog:
        location = str(catalog.describe_table({"id": ["shop", "orders"]}).location).removeprefix("file://")
    next(Path(location, "data").iterdir()).unlink()
    run = Run("head", "shop.orders", *lake)
    assert run.code == 1 and "its file data/" in run.err and "does not exist" in run.err and ".rs" not in run.err


def test_a_table_is_declared_or_registered_without_data(lake: Sequence[str], tmp_path: Path) -> None:
    run = Run("register", "shop.nothing", str(tmp_path / "lake" / "nothing"), *lake)
    assert run.code == 0 and "warning: Table not found" in run.err
    run = Run("create", "shop.later", *lake)
    assert run.code == 0 and run.out.startswith("declared shop$later at ")
    assert Run("head", "shop.later", *lake).code == 3


def test_the_properties_of_a_kind_are_listed() -> None:
    run = Run("profile", "properties", "iceberg", "-o", "plain")
    assert run.lines[0].split("\t")[:2] == ["endpoint", "required"] and "The address of the catalog" in run.lines[0]
    assert any(line.startswith("warehouse\t") for line in run.lines)
    assert "did you mean 'iceberg'?" in Run("profile", "properties", "icberg").err


def test_changes_are_told_as_rows(lake: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("id\n4\n")
    for command, outcome in (
        (["ns", "create", "new"], "created"),
        (["create", "new.a", str(tmp_path / "more.csv")], "written"),
        *((["create", "new.b"], "declared"), (["drop", "new.a", "--dry-run"], "would drop")),
        *((["drop", "new.*", "--yes"], "dropped"), (["ns", "drop", "new"], "dropped")),
    ):
        run = Run(*command, "--json", *lake)
        rows = json.loads(run.out)
        assert run.code == 0 and {row["outcome"] for row in rows} == {outcome} and rows[0]["names"][0] == "new"
    partly = Run("drop", "shop.orders", "shop.gone", "--yes", "-o", "csv", *lake)
    assert partly.code == 1 and partly.lines == ["id,outcome,location", "shop$orders,dropped,"]
    assert json.loads(Run("drop", "shop.gone", "--yes", "--json", *lake).out) == []


@pytest.mark.parametrize("command", [["audit"], ["find"], ["maintain"], ["maintain", "--dry-run"]])
def test_a_pattern_that_matches_nothing_is_no_success(lake: Sequence[str], command: Sequence[str]) -> None:
    run = Run(*command, "*.none", *lake)
    assert run.code == 3 and "no table matches '*.none'; '**' also matches" in run.err


@pytest.mark.parametrize("command", [["audit"], ["find"], ["maintain", "--dry-run"]])
def test_reports_on_ids_that_do_not_exist_suggest_near_ones(lake: Sequence[str], command: Sequence[str]) -> None:
    run = Run(*command, "shop", "shop.ordes", *lake)
    assert run.code == 1 and "lance-ns: shop: it is a namespace" in run.err
    assert "lance-ns: shop$ordes: did you mean shop$orders?" in run.err


pytestmark = pytest.mark.floors


@pytest.fixture
def declared(tmp_path: Path) -> list[str]:
    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.write(["t"], pa.table({"id": [1, 2]}))
        namespace.declare_table({"id": ["declared"]})
    return ["--impl", "dir", "-p", f"root={tmp_path}"]


def run(*arguments: str) -> tuple[int, list[dict[str, object]]]:
    result = Run(*arguments, "-o", "json")
    return result.code, json.loads(result.out or "[]")


def test_audit_prints_findings_and_repairs_them_by_name(declared: list[str]) -> None:
    code, rows = run("audit", "*", *declared)
    assert code == 1 and [(row["id"], row["outcome"]) for row in rows] == [("declared", "declared-only")]
    code, rows = run("audit", "*", "--fix", "declared-only", *declared)
    assert code == 0 and [row["outcome"] for row in rows] == ["fixed"]
    assert run("audit", "*", *declared) == (0, []) and Run("ls", *declared).lines == ["t"]


def test_find_prints_matching_tables(declared: list[str]) -> None:
    code, rows = run("find", "*", "--column", "id:int64", "--min-rows", "2", "--newer-than", "1d", *declared)
    assert code == 0 and [(row["id"], row["rows"]) for row in rows] == [("t", 2)]
    assert run("find", "*", "--older-than", "30d", *declared) == (0, [])
    result = Run("find", "*", *declared)
    assert result.code == 0 and "last_write" in result.out


@pytest.fixture
def vectors(tmp_path: Path) -> list[str]:
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as namespace:
        namespace.create_namespace("s")
        for number in range(3):
            vectors = pa.array([[number, 0.0], [0.0, number]], pa.list_(pa.float32(), 2))
            namespace.write(["s", f"t{number}"], pa.table({"id": [1, 2], "word": ["cat", "dog"], "vector": vectors}))
        namespace.create_table_scalar_index("s.t2", column="word", index_type="FTS")
        namespace.write(["s", "other"], pa.table({"id": [1]}))
    return ["--impl", "dir", "-p", f"root={tmp_path / 'lake'}"]


def test_the_best_rows_of_all_tables_are_shown_and_errors_have_exit_codes(vectors: list[str], tmp_path: Path) -> None:
    result = Run("search", "s.t*", "--nearest", "1,0", "-n", "2", "-c", "id", "-o", "json", *vectors)
    assert result.code == 0 and "3 tables searched, 0 errors" in result.err
    assert json.loads(result.out) == [
        {"id": 1, "_distance": 0.0, "_table": "s$t1"},
        {"id": 1, "_distance": 1.0, "_table": "s$t0"},
    ]
    out = tmp_path / "rows.parquet"
    assert Run("search", "s.t2", "--text", "dog", "-c", "word", "--out", str(out), *vectors).code == 0
    assert pq.read_table(out)["word"].to_pylist() == ["dog"]
    again = Run("search", "s.t*", "--nearest", "[1, .0]", "-n", "2", "-c", "id", "-o", "json", *vectors)
    assert again.out == result.out
    filtered = Run("search", "s.t*", "--nearest", "1,0", "-f", "id = 2", "-n", "1", "-o", "json", *vectors)
    assert [row["id"] for row in json.loads(filtered.out)] == [2]
    result = Run("search", "s.*", "--nearest", "1,0", *vectors)
    assert result.code == 1 and "s$t1" in result.out and "s$other" in result.err
    missing = Run("search", "s.none", "--nearest", "1,0", *vectors)
    assert missing.code == 1 and "Table not found: s$none" in missing.err
    assert Run("search", "s.x*", "--nearest", "1,0", *vectors).code == 3


@pytest.fixture
def partitioned(tmp_path: Path) -> list[str]:
    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.partition_by(["region"], schema=pa.schema({"n": pa.int64(), "region": pa.string()}))
    return ["--impl", "dir", "-p", f"root={tmp_path}"]


def test_partitions_are_listed_by_a_condition_and_errors_are_told(partitioned: list[str], tmp_path: Path) -> None:
    result = Run("partitions", *partitioned)
    assert (result.code, result.out) == (0, "") and "no partitions yet" in result.err
    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.write_partitions(pa.table({"n": [1, 2, 3], "region": ["EU", "US", None]}))
        (partition,) = namespace.list_partitions("region = 'EU'")
    rows = json.loads(Run("partitions", "--output", "json", *partitioned).out)
    assert {row["values"]["region"] for row in rows} == {"EU", "US", None}
    (row,) = json.loads(Run("partitions", "region = 'EU'", "--output", "json", *partitioned).out)
    assert row == {"values": {"region": "EU"}, "spec": 1, "id": str(partition.id), "location": partition.location}
    result = Run("partitions", "region = 'ASIA'", *partitioned)
    assert (result.code, result.out) == (0, "") and "no partition may have such rows" in result.err
    result = Run("partitions", "none = 1", *partitioned)
    assert result.code == Code.USAGE and "No field named none" in result.err
    other = Run("partitions", "--impl", "dir", "-p", f"root={tmp_path / 'other'}")
    assert other.code != 0 and "this directory has no partitions" in other.err
