"""Tables of AWS Glue: requests, recognition of Lance tables, locations; many by patterns, pages or singly."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import lance_namespace.errors as err
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.backends.glue.backend import expressions
from lance_ns_async.calls.observers import Call
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import NamespaceId
from tests.fakes.glue import FakeGlue
from tests.fakes.sockets import Script, http
from tests.support.errors import catch
from tests.support.glue import connected, declared, described, opened
from tests.support.lake import ROWS


@pytest.fixture
def server(shared: FakeGlue) -> FakeGlue:
    shared.reset()
    shared.add_database("", "db")
    return shared


async def test_a_declared_table_is_an_external_one_of_lance(server: FakeGlue, ns: AsyncNamespace) -> None:
    answer = await declared(ns, "db", "T", location="s3://Bucket/T/", properties={"Owner": "me"})
    result = await described(ns, "db", "t")
    stored = server.table("", "db", "t")
    kept = {"Owner": "me", "managed_by": "storage", "table_type": "lance"}
    # The identity of the registration, which responses do not contain.
    assert stored["Parameters"].pop("lance_ns.registration")
    assert (stored["Name"], stored["TableType"], stored["Parameters"]) == ("t", "EXTERNAL_TABLE", kept)
    assert answer.location == result.location == stored["StorageDescriptor"]["Location"] == "s3://Bucket/T/"
    assert answer.properties == result.properties == kept and result.storage_options == {"Owner": "me"}
    assert server.calls == ["CreateTable", "GetTable"]


@pytest.mark.parametrize(
    ("uri", "root", "location"),
    [
        ("s3a://warehouse/db/", None, "s3://warehouse/db/t~2F1.lance"),
        ("s3://warehouse/db", "s3://root", "s3://warehouse/db/t~2F1.lance"),
        (None, "s3://root/", "s3://root/other/t~2F1"),
    ],
)
async def test_default_location(server: FakeGlue, uri: str | None, root: str | None, location: str) -> None:
    server.add_database("", "other", location=uri)
    async with connected(server, unique_locations="false", **({"root": root} if root else {})) as ns:
        assert (await declared(ns, "Other", "T/1")).location == location


async def test_a_replacement_keeps_the_spelling_of_a_location(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.add_table("", "db", "t", location="s3a://b/t")
    for location, stored in (("s3://b/t", "s3a://b/t"), ("s3://b/u", "s3://b/u")):
        await ns.register_table({"id": ["db", "t"], "location": location, "mode": "Overwrite"})
        assert server.table("", "db", "t")["StorageDescriptor"]["Location"] == stored


async def test_without_any_place_a_location_is_requested(server: FakeGlue, ns: AsyncNamespace) -> None:
    with pytest.raises(err.InvalidInputError, match=r"table db\$t: .* give a location, or set the property root"):
        await declared(ns, "db", "t")
    await catch(err.NamespaceNotFoundError, declared(ns, "none", "t"), r"^Namespace not found: none ")
    assert "CreateTable" not in server.calls


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("x" * 256, {}, "names of at most 255"),
        ("a\nb", {}, "control character"),
        ("t", {"properties": {"table_type": "iceberg"}}, "table_type='iceberg' is not supported; only 'lance'"),
        ("t", {"properties": {"managed_by": "impl"}}, "managed_by='impl' is not supported; only 'storage'"),
        *(("t", it, "keys of 1 to 255") for it in ({"properties": {"k" * 256: "v"}}, {"properties": {"": "v"}})),
        ("t", {"properties": {"k": "v" * 512_001}}, "values of at most 512000"),
        ("t", {"location": "s3://b/" + "x" * 2056}, "locations of 1 to 2056"),
        ("t", {"location": "s3://b/\x00"}, "has a control character"),
    ],
)
async def test_bad_declaration(server: FakeGlue, ns: AsyncNamespace, name: str, fields: Any, text: str) -> None:
    request = {"id": ["db", name], "location": "s3://b/t", **fields}
    await catch(err.InvalidInputError, ns.declare_table(request), text)
    await catch(err.InvalidInputError, ns.register_table({**request, "mode": "Overwrite"}), text)
    assert server.calls == []


@pytest.mark.parametrize(("kind", "form"), [("lance", "EXTERNAL_TABLE"), ("LANCE", None), ("Lance", "external_table")])
async def test_lance_is_spelled_in_any_case(server: FakeGlue, ns: AsyncNamespace, kind: str, form: str | None) -> None:
    server.add_table("", "db", "t", parameters={"table_type": kind}, table_type=form)
    assert (await described(ns, "DB", "T")).location == "s3://bucket/db/t.lance"
    assert (await ns.list_tables(["Db"])).tables == ["t"]


async def test_what_is_not_lance_is_reported_and_not_listed(server: FakeGlue, ns: AsyncNamespace) -> None:
    target = {"CatalogId": server.account, "DatabaseName": "far", "Name": "away"}
    server.add_table("", "db", "iceberg", parameters={"table_type": "ICEBERG"})
    server.add_table("", "db", "untold", parameters=None)
    server.add_table("", "db", "managed", table_type="MANAGED_TABLE")
    server.add_table("", "db", "nowhere", location=None)
    server.add_table("", "db", "link", parameters=None, table_type=None, location=None, TargetTable=target)
    server.add_table("", "db", "t")
    reasons = {
        "iceberg": "its table_type is 'ICEBERG'",
        "untold": "its table_type is None",
        "managed": "its TableType is 'MANAGED_TABLE'",
        "nowhere": "it has no Location",
        "link": r"it is a resource link; use its target, far\$away",
    }
    for name, reason in reasons.items():
        await catch(NotALanceTableError, described(ns, "db", name), f"{name} is no Lance table: {reason}")
    assert (await ns.list_tables(["db"])).tables == ["t"]
    result = await ns.describe_tables([["db", name] for name in (*reasons, "t", "u", "v")])
    assert {id.name for id in result.tables} == {"t"}
    assert {id.name for id, e in result.errors.items() if isinstance(e, NotALanceTableError)} == set(reasons)


@pytest.mark.parametrize("strategy", ["auto", "get", "list"])
async def test_storage_options_are_the_configured_ones_over_the_table_s(server: FakeGlue, strategy: str) -> None:
    kept = {"table_type": "lance", "empty_table": "true", "EXTERNAL": "TRUE", "region": "mars", "timeout": "5s"}
    server.add_tables("", "db", [f"t{i}" for i in range(12)], parameters=kept)
    more = {"storage.region": "us-east-1", "storage.access_key_id": "AKIASTORAGE"}
    async with connected(server, bulk_strategy=strategy, **more) as ns:
        result = (await ns.describe_tables([["db", f"t{i}"] for i in range(12)])).raise_for_errors()
        alone = await described(ns, "db", "t0")
    expected = {"region": "us-east-1", "access_key_id": "AKIASTORAGE", "timeout": "5s"}
    assert alone.storage_options == expected and alone.properties == kept
    assert [table.storage_options for table in result.tables.values()] == [expected] * 12


async def test_a_missing_database_is_no_missing_table(server: FakeGlue, ns: AsyncNamespace) -> None:
    await catch(err.TableNotFoundError, described(ns, "db", "none"), r"^Table not found: db\$none ")
    await catch(err.NamespaceNotFoundError, described(ns, "none", "t"), r"^Namespace not found: none \(describe_table")
    with pytest.raises(err.NamespaceNotFoundError, match=r"^Namespace not found: none \(describe_table"):
        await ns.deregister_table(["none", "t"])
    assert server.calls == ["GetTable", "GetDatabase"] * 3
    server.deny("GetDatabase")
    await catch(err.TableNotFoundError, described(ns, "db", "none"), r"^Table not found: db\$none ")


async def test_a_missing_database_that_a_server_lists_as_an_empty_one_is_missing() -> None:
    gone = http(400, '{"__type": "EntityNotFoundException", "message": "gone"}')
    async with Script(http(body='{"TableList": []}'), gone) as server:
        properties = {"endpoint": server.url, "region": "us-east-1", "access_key_id": "a", "secret_access_key": "s"}
        async with AsyncNamespace.connect("glue", {**properties, "catalogs": "off"}) as ns:
            await catch(err.NamespaceNotFoundError, ns.list_tables(["db"]), r"^Namespace not found: db ")


NAMES = [f"table_{i:04}" for i in range(2000)]
OTHERS = [f"other_{i:04}" for i in range(500)]


@pytest.fixture(scope="module")
def full() -> Iterator[FakeGlue]:
    """2,000 Lance tables among 2,500."""
    with FakeGlue() as many:
        many.add_database("", "db")
        many.add_tables("", "db", NAMES)
        many.add_tables("", "db", OTHERS, parameters={"table_type": "ICEBERG"})
        yield many


@pytest.fixture
def many(full: FakeGlue) -> FakeGlue:
    full.heal()
    full.clear()
    full.switch(ignore_expression=False, fnmatch_expression=False, short_pages=False)
    return full


@pytest.fixture
async def lake(many: FakeGlue) -> AsyncIterator[AsyncNamespace]:
    async with connected(many) as ns:
        yield ns


async def resolved(ns: AsyncNamespace, names: Sequence[str]) -> None:
    """Describes the tables, which must all be at their locations."""
    result = (await ns.describe_tables([["db", name] for name in names])).raise_for_errors()
    assert {id.name: table.location for id, table in result.tables.items()} == {
        name: f"s3://bucket/db/{name.lower()}.lance" for name in names
    }


@pytest.mark.parametrize(
    ("strategy", "count", "calls"),
    [
        ("auto", 7, {"GetTable": 7}),
        *(("auto", it, {"GetTables": 1}) for it in (8, 100)),
        ("auto", 500, {"GetTables": 5}),
        ("auto", 2000, {"GetTables": 20}),
        ("get", 100, {"GetTable": 100}),
        ("list", 8, {"GetTable": 8}),
        ("list", 2000, {"GetTables": 20}),
    ],
)
async def test_cost_of_a_strategy(many: FakeGlue, strategy: str, count: int, calls: dict[str, int]) -> None:
    # The other five hundred come after the Lance tables in the listing.
    async with connected(many, bulk_strategy=strategy) as ns:
        await resolved(ns, NAMES[:count])
    assert {operation: many.calls.count(operation) for operation in set(many.calls)} == calls


@pytest.mark.parametrize("strategy", ["auto", "get", "list"])
async def test_listing_reads_every_page_once_be_it_short_or_empty(many: FakeGlue, strategy: str) -> None:
    async with connected(many, bulk_strategy=strategy) as ns:
        assert (await ns.list_tables(["db"])).tables == NAMES and many.calls == ["GetTables"] * 25
        first = await ns.list_tables(["db"], limit=3)
        second = await ns.list_tables(["db"], limit=3, page_token=first.page_token)
        assert [*first.tables, *second.tables] == NAMES[:6]
        many.switch(short_pages=True)
        await resolved(ns, NAMES[:20])
        assert (await ns.list_tables(["db"])).tables == NAMES


async def test_patterns_are_as_short_as_glue_wants_and_side_by_side(many: FakeGlue, lake: AsyncNamespace) -> None:
    names = [f"{i:03}{'x' * 250}" for i in range(40)]
    many.add_database("", "long")
    many.add_tables("", "long", names)
    many.delay(0.02)
    result = (await lake.describe_tables([["long", name] for name in names])).raise_for_errors()
    assert len(result) == 40 and many.calls == ["GetTables"] * 5 and many.most_in_flight == 5
    assert all(len(call.parameters["Expression"]) <= 2048 for call in many.requests)


async def test_names_are_returned_as_requested_and_odd_ones_described_individually(
    many: FakeGlue, lake: AsyncNamespace
) -> None:
    names = [f"Table_{i:04}" for i in range(8)] + ["TABLE_0000", "table_0000"]
    await resolved(lake, names)
    assert many.calls == ["GetTables"]
    many.clear()
    odd = ["a.b", "a*b", "a|b", "[a]", "a?", "é é"]
    many.add_database("", "odd")
    many.add_tables("", "odd", [*odd, "acb", "ab", *NAMES[:8]])
    result = (await lake.describe_tables([["odd", name] for name in (*odd, *NAMES[:8])])).raise_for_errors()
    assert set(result.tables) == {TableId(["odd", name]) for name in (*odd, *NAMES[:8])}
    assert many.calls.count("GetTables") == 1 and many.calls.count("GetTable") == 5


async def test_each_miss_is_confirmed_by_its_own_name(many: FakeGlue, lake: AsyncNamespace) -> None:
    missing = [f"none{i}" for i in range(3)]
    result = await lake.describe_tables([["db", name] for name in (*NAMES[:20], *missing)])
    assert len(result.tables) == 20 and {id.name for id in result.errors} == set(missing)
    assert all(isinstance(e, err.TableNotFoundError) for e in result.errors.values())
    assert many.calls.count("GetTable") == 3
    gone = await lake.describe_tables([["gone", name] for name in NAMES[:20]])
    assert {type(e) for e in gone.errors.values()} == {err.NamespaceNotFoundError}
    assert many.calls.count("GetTable") == 3, "a missing database is missing for all its tables"
    many.clear()
    await resolved(lake, NAMES[:20])
    assert many.calls == ["GetTables"], "patterns are still trusted"


@pytest.mark.parametrize("quirk", ["ignore_expression", "fnmatch_expression"])
async def test_server_without_patterns(many: FakeGlue, lake: AsyncNamespace, quirk: str) -> None:
    many.switch(**{quirk: True})
    async with opened(many) as backend:
        parent = NamespaceId(["db"])
        given_up = backend.capabilities_now.describe_batch
        first = await backend.describe_tables(parent, NAMES[-20:])
        for name in NAMES[-20:]:
            if name not in first:
                assert (await backend.describe_table(parent.table(name))).id.name == name
        assert given_up == 100 and backend.capabilities_now.describe_batch == 0
        assert backend.capabilities.listing_has_locations
        assert backend.capabilities.describe_batch == 100 and backend.server.traits.batches is False
    assert many.calls.count("GetTables") <= 2
    await resolved(lake, NAMES[-100:])
    many.clear()
    await resolved(lake, NAMES[:100])
    assert not [call for call in many.requests if "Expression" in call.parameters]


async def test_what_was_made_since_a_pattern_missed_it_alone_proves_nothing(many: FakeGlue) -> None:
    many.add_database("", "growing")
    many.add_tables("", "growing", NAMES[:8])
    async with opened(many) as backend:
        parent = NamespaceId(["growing"])
        assert len(await backend.describe_tables(parent, [*NAMES[:8], "late"])) == 8
        many.add_table("", "growing", "late")
        await backend.describe_table(parent.table("late"))
        assert backend.capabilities_now.describe_batch == 100


@given(st.lists(st.text("ab-_ 0é", min_size=1, max_size=255), unique=True, max_size=60))
def test_patterns_mean_each_name_once_and_no_other(names: list[str]) -> None:
    lowered = [name.lower() for name in names]
    parts = list(expressions(lowered))
    assert [name for _, part in parts for name in part] == lowered
    for expression, part in parts:
        assert len(expression) <= 2048 and part
        assert [name for name in lowered if re.fullmatch(expression, name)] == part


async def test_tables_are_described_together_where_no_credentials_come_with_them(tmp_path: Path) -> None:
    ids = [["n", name] for name in "abcdefgh"]
    with FakeGlue() as many:
        async with connected(many, root=tmp_path.as_uri()) as ns:
            await ns.create_namespace(["n"])
            for id in ids:
                await ns.write(id, ROWS)
            calls: list[Call] = []
            steps: list[tuple[int, int]] = []
            with ns.observe(calls.append):
                opened = await ns.open_many([*ids, ["n", "none"]], progress=lambda *step: steps.append(step))
        assert calls[0].operation == "describe_tables" and {str(call.subject) for call in calls[1:]} == {"n", "n$none"}
        assert [list(id) for id in opened.tables] == ids and steps[-1] == (9, 9)
        assert [type(error) for error in opened.errors.values()] == [err.TableNotFoundError]
