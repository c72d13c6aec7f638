"""The fake Hive Metastore: names, addresses, listings, tables and files like those of real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.hive3 import LANCE, FakeHive
from tests.fakes.hive3.raw import RawHive, catalog, database, named, table
from tests.fakes.hive3.series import EVERY, LANCE_FILTER
from tests.fakes.thrift_wire import I16, STRUCT, Struct, Typed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeHive]:
    with FakeHive(tmp_path) as running:
        yield running


@pytest.fixture
def client(server: FakeHive) -> Iterator[RawHive]:
    with RawHive(server.uri) as connected:
        connected.do("create_catalog", catalog("cat", f"file://{server.warehouse}/cat"))
        connected.do("create_database", database("cat", "d"))
        yield connected


@pytest.fixture
def modern(tmp_path: Path) -> Iterator[RawHive]:
    with FakeHive(tmp_path, version="4.0.1") as server, RawHive(server.uri) as connected:
        server.add_catalog("cat")
        server.add_database("cat", "d")
        yield connected


def read(client: RawHive, name: str) -> Struct:
    result: Struct = client.do("get_table_req", named("cat", "d", name))[1]
    return result


def files(server: FakeHive) -> list[str]:
    return sorted(str(path.relative_to(server.warehouse)) for path in server.warehouse.rglob("*") if path.is_file())


def write(server: FakeHive, place: str) -> None:
    (server.warehouse / place).mkdir(parents=True, exist_ok=True)
    (server.warehouse / place / "data").write_text("data")


def test_it_is_alive_and_has_the_catalog_hive(server: FakeHive) -> None:
    with RawHive(server.uri) as client:
        assert client.do("getStatus") == 2
        assert client.do("get_catalogs") == {1: ["hive"]}
        assert client.do("get_databases", "*") == ["default"]


def test_a_new_catalog_has_a_default_database_and_keeps_its_location_as_given(
    server: FakeHive, client: RawHive
) -> None:
    client.do("create_catalog", catalog("Other", f"file://{server.warehouse}/o/", "described"))
    location = f"file://{server.warehouse}/o/"
    assert client.do("get_catalog", Struct({1: "OTHER"})) == {1: {1: "other", 2: "described", 3: location}}
    default = client.do("get_database", "@other#default")
    assert default[3] == f"file:{server.warehouse}/o" and (server.warehouse / "o").is_dir()


def test_names_fold_and_missing_ones_are_reported_by_each_method_in_its_way(client: RawHive) -> None:
    assert client.do("get_database", "@CAT#D")[1] == "d"
    for method, request, kind, message in (
        ("get_catalog", Struct({1: "x"}), "NoSuchObjectException", "No catalog x"),
        ("get_database", "@cat#x", "NoSuchObjectException", "x"),
        ("get_database", "@x#d", "NoSuchObjectException", "d"),
        ("create_database", database("x", "d"), "InvalidObjectException", "No such catalog x"),
        ("create_database", database("cat", "a-b"), "InvalidObjectException", "a-b is not a valid database name"),
        ("create_table", table("cat", "x", "t"), "InvalidObjectException", "x"),
        ("create_table", table("cat", "d", "a.b"), "InvalidObjectException", "a.b is not a valid object name"),
        ("get_table_req", named("cat", "x", "t"), "NoSuchObjectException", "cat.x.t table not found"),
        ("get_table_req", named(None, "@cat#d", "t"), "NoSuchObjectException", "hive.@cat#d.t table not found"),
        (
            "get_table_objects_by_name_req",
            named("cat", "x", ["t"]),
            "UnknownDBException",
            "Could not find database cat.x",
        ),
    ):
        outcome = client.ask(method, request)
        assert (outcome.kind, outcome.value) == (kind, message)


def test_listings_of_what_is_missing_are_empty_and_no_error(client: RawHive) -> None:
    for text in ("@cat#x", "@x#d"):
        assert client.do("get_all_tables", text) == []
        assert client.do("get_table_names_by_filter", text, LANCE_FILTER, EVERY) == []
    assert client.do("get_databases", "@x#*") == []


def test_dropping_a_missing_database_fails_with_a_null_pointer(client: RawHive) -> None:
    outcome = client.ask("drop_database", "@cat#x", False, False)
    assert outcome.kind == "MetaException" and outcome.value.endswith('because "db" is null')


def test_the_filter_matches_java_regexes_and_refuses_comparisons(server: FakeHive, client: RawHive) -> None:
    for name, kind in (("a", "lance"), ("b", "LANCE"), ("c", "iceberg")):
        server.add_table("cat", "d", name, parameters={"table_type": kind})

    def filtered(text: str, most: int = -1) -> list[str]:
        return sorted(client.do("get_table_names_by_filter", "@cat#d", text, Typed(I16, most)))

    key = "hive_filter_field_params__table_type"
    assert filtered(LANCE_FILTER) == ["a", "b"]
    assert filtered(f'{key} like "lance"') == ["a"]
    assert filtered(f'{key} like "l.*"') == ["a"]
    assert filtered(f'{key} like "l%"') == []
    assert filtered(LANCE_FILTER, 0) == []
    for operator in ("=", "<>"):
        outcome = client.ask("get_table_names_by_filter", "@cat#d", f'{key} {operator} "lance"', EVERY)
        assert outcome.kind == "MetaException" and f"C0.PARAM_VALUE {operator} ?" in outcome.value


def test_other_databases_behind_it_compare_or_refuse_to_filter(tmp_path: Path) -> None:
    equal = 'hive_filter_field_params__table_type = "lance"'
    with FakeHive(tmp_path / "text", filters="text") as server, RawHive(server.uri) as client:
        server.add_table("hive", "default", "t")
        assert client.do("get_table_names_by_filter", "default", equal, EVERY) == ["t"]
    with FakeHive(tmp_path / "none", filters="refused") as server, RawHive(server.uri) as client:
        server.add_table("hive", "default", "t")
        assert client.ask("get_table_names_by_filter", "default", LANCE_FILTER, EVERY).kind == "MetaException"
        assert client.do("get_all_tables", "default") == ["t"]


def test_a_bulk_answer_has_each_table_once_and_no_order(server: FakeHive, client: RawHive) -> None:
    names = [f"t{number:03}" for number in range(400)]
    for name in names:
        server.add_table("cat", "d", name)
    result = client.do("get_table_objects_by_name_req", named("cat", "d", [*names, "T007", "missing", "t007"]))[1]
    order = [one[1] for one in result]
    assert sorted(order) == names and order != names


def test_only_a_parameter_makes_a_table_external(client: RawHive) -> None:
    for name, parameters in (("a", {"table_type": "lance"}), ("b", {"EXTERNAL": "true"}), ("c", {"EXTERNAL": "no"})):
        client.do("create_table", table("cat", "d", name, parameters=parameters))
    assert [read(client, name)[12] for name in "abc"] == ["MANAGED_TABLE", "EXTERNAL_TABLE", "MANAGED_TABLE"]


def test_a_table_gets_a_directory_a_tidy_location_and_no_statistics_where_asked(
    server: FakeHive, client: RawHive
) -> None:
    place = server.warehouse / "t ü%20"
    client.do("create_table", table("cat", "d", "t", location=f"file://{place}/"))
    assert read(client, "t")[7][2] == f"file:{place}" and place.is_dir()
    write(server, "full")
    quiet = {**LANCE, "DO_NOT_UPDATE_STATS": "true"}
    for name, parameters in (("counted", LANCE), ("quiet", quiet)):
        request = table("cat", "d", name, parameters=parameters, location=f"{server.warehouse}/full")
        client.do("create_table", request)
    assert read(client, "counted")[9].keys() == {*LANCE, "numFiles", "totalSize", "transient_lastDdlTime"}
    assert read(client, "quiet")[9].keys() == {*LANCE, "transient_lastDdlTime"}


def test_locations_it_cannot_reach_are_refused_or_cut_the_connection(client: RawHive, tmp_path: Path) -> None:
    for location, message in (
        ("a/b", "java.lang.IllegalArgumentException: java.net.URISyntaxException: Relative path in absolute URI"),
        ("s3://a/b", 'org.apache.hadoop.fs.UnsupportedFileSystemException No FileSystem for scheme "s3"'),
        ("s3a://a/b", "ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"),
    ):
        outcome = client.ask("create_table", table("cat", "d", "t", location=location))
        assert outcome.kind == "MetaException" and message in outcome.value
    assert client.ask("create_catalog", catalog("other", "s3a://a/b")).kind == "cut"
    with FakeHive(tmp_path / "jars", schemes={"s3a"}) as server, RawHive(server.uri) as other:
        other.do("create_table", table("hive", "default", "t", location="s3a://a/b/"))
        assert other.do("get_table_req", named("hive", "default", "t"))[1][7][2] == "s3a://a/b"


@pytest.mark.parametrize(
    ("broken", "message"),
    [(Struct({7: Struct()}), '"cols" is null'), (Struct({1: Typed(STRUCT, [])}), "Invalid SerDeInfo object")],
)
def test_a_table_needs_columns_and_a_serde(client: RawHive, broken: Struct, message: str) -> None:
    outcome = client.ask("create_table", table("cat", "d", "t", storage=broken))
    assert outcome.kind == "MetaException" and message in outcome.value


def test_what_is_too_long_is_refused_except_where_success_is_claimed(client: RawHive) -> None:
    long = database("cat", "d", parameters={"k": "v" * 4001})
    refused = client.ask("create_database", Struct({**long, 1: "other"}))
    assert refused.kind == "MetaException" and refused.value.startswith(
        "Put request failed : INSERT INTO DATABASE_PARAMS"
    )
    assert client.do("alter_database", "@cat#d", long) is None
    assert client.do("get_database", "@cat#d")[4] == {}
    named_long = client.ask("create_table", table("cat", "d", "n" * 257, location="/"))
    assert named_long.kind == "MetaException" and "has maximum length of 256" in named_long.value


def test_alter_database_replaces_only_parameters_and_owner(client: RawHive) -> None:
    request = database("cat", "x", description="d", parameters={"a": "1"}, owner=("me", 2))
    client.do("create_database", request)
    client.do("alter_database", "@cat#x", database("cat", "x", parameters={"b": "2"}))
    result = client.do("get_database", "@cat#x")
    assert (result[2], result[4], result.get(6), result[7]) == ("d", {"b": "2"}, None, 2)


def test_a_rename_moves_the_files_of_managed_tables_alone(server: FakeHive, client: RawHive) -> None:
    for name, parameters in (("managed", {"table_type": "lance"}), ("external", LANCE)):
        client.do("create_table", table("cat", "d", name, parameters=parameters))
        write(server, f"cat/d.db/{name}")
        renamed = Struct({**table("cat", "d", f"{name}2", parameters=parameters), 7: read(client, name)[7]})
        client.do("alter_table", "@cat#d", name, renamed)
    assert files(server) == ["cat/d.db/external/data", "cat/d.db/managed2/data"]
    unfit = client.ask("alter_table", "@cat#d", "external2", Struct({**renamed, 8: None}))
    assert (unfit.kind, unfit.value) == ("InvalidOperationException", "partition keys can not be changed.")


def test_dropping_with_data_deletes_the_files_of_managed_tables_alone(server: FakeHive, client: RawHive) -> None:
    for name, parameters in (("kept", {}), ("managed", {}), ("external", LANCE)):
        client.do("create_table", table("cat", "d", name, parameters=parameters))
        write(server, f"cat/d.db/{name}")
        client.do("drop_table", "@cat#d", name, name != "kept")
    assert files(server) == ["cat/d.db/external/data", "cat/d.db/kept/data"]


def test_dropping_a_database_leaves_files_by_default(server: FakeHive, client: RawHive) -> None:
    client.do("create_table", table("cat", "d", "external"))
    write(server, "cat/d.db/external")
    refused = client.ask("drop_database", "@cat#d", False, False)
    assert (refused.kind, refused.value[:24]) == ("InvalidOperationException", "Database d is not empty.")
    client.do("drop_database", "@cat#d", False, True)
    assert files(server) == ["cat/d.db/external/data"]
    client.do("create_database", database("cat", "d"))
    client.do("drop_database", "@cat#d", True, True)
    assert files(server) == []


def test_dropping_a_catalog_deletes_all_that_lies_at_its_location(server: FakeHive, client: RawHive) -> None:
    write(server, "cat/of/someone")
    refused = client.ask("drop_catalog", Struct({1: "cat"}))
    assert refused.value == "There are non-default databases in the catalog cat so it cannot be dropped."
    client.do("drop_database", "@cat#d", False, True)
    server.add_table("cat", "default", "t")
    refused = client.ask("drop_catalog", Struct({1: "cat"}))
    assert refused.value == "There are still objects in the default database for catalog cat"
    client.do("drop_table", "@cat#default", "t", False)
    client.do("drop_catalog", Struct({1: "cat"}))
    assert files(server) == []


def test_dropping_a_catalog_without_a_default_database_leaves_its_files(server: FakeHive, client: RawHive) -> None:
    write(server, "cat/of/someone")
    for name in ("d", "default"):
        client.do("drop_database", f"@cat#{name}", False, True)
    elsewhere = Struct({1: "cat", 3: f"file://{server.warehouse}/cat/nothing-here"})
    client.do("alter_catalog", Struct({1: "cat", 2: elsewhere}))
    client.do("drop_catalog", Struct({1: "cat"}))
    assert files(server) == ["cat/of/someone/data"]


def test_hive_and_its_default_database_stay(client: RawHive) -> None:
    assert client.ask("drop_catalog", Struct({1: "hive"})).value == "Can not drop hive catalog"
    message = client.ask("drop_database", "default", False, True).value
    assert message == "Can not drop default database in catalog hive"


def test_version_4_takes_other_names_and_finds_other_words(modern: RawHive) -> None:
    assert modern.ask("get_database", "@cat#x").value == "database cat.x"
    dropped = modern.ask("drop_database", "@cat#x", False, False)
    assert (dropped.kind, dropped.value) == ("NoSuchObjectException", "database cat.x")
    modern.do("create_database", database("cat", "a-b.c"))
    modern.do("create_table", table("cat", "d", "a-b.c"))
    outcome = modern.ask("create_catalog", catalog("c", "rel"))
    assert (outcome.kind, outcome.value) == ("TApplicationException", (6, "Internal error processing create_catalog"))


def test_what_a_test_puts_there_is_read_back_without_any_directory(server: FakeHive, client: RawHive) -> None:
    server.add_catalog("Planted", location="s3://bucket/planted/")
    server.add_database("planted", "far")
    server.add_catalog("local")
    server.add_database("local", "D", parameters={"k": "v"})
    server.add_table("local", "d", "T", parameters={"a": "b"}, location="s3://x/y/", table_type="VIRTUAL_VIEW")
    assert client.do("get_database", "@planted#far")[3] == "s3://bucket/planted/far.db"
    assert client.do("get_database", "@local#d")[4] == {"k": "v"}
    result = client.do("get_table_req", named("local", "d", "t"))[1]
    assert (result[7][2], result[9], result[12]) == ("s3://x/y/", {"a": "b"}, "VIRTUAL_VIEW")
    assert not (server.warehouse / "local").exists()
