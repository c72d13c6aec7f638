"""Tables of AWS Glue: requests, recognition of Lance tables, locations, and lost responses."""

from __future__ import annotations

import asyncio

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.errors import NotALanceTableError
from tests.fakes.glue import FakeGlue
from tests.fakes.sockets import Script, http
from tests.support.errors import catch
from tests.support.glue import connected, declared, described


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
        ("s3://warehouse/db/", None, "s3://warehouse/db/t~2F1.lance"),
        ("s3://warehouse/db", "s3://root", "s3://warehouse/db/t~2F1.lance"),
        (None, "s3://root/", "s3://root/other/t~2F1"),
    ],
)
async def test_default_location(server: FakeGlue, uri: str | None, root: str | None, location: str) -> None:
    server.add_database("", "other", location=uri)
    async with connected(server, unique_locations="false", **({"root": root} if root else {})) as ns:
        assert (await declared(ns, "Other", "T/1")).location == location


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
        ("t", {"properties": {"k" * 256: "v"}}, "keys of 1 to 255"),
        ("t", {"properties": {"": "v"}}, "keys of 1 to 255"),
        ("t", {"properties": {"k": "v" * 512_001}}, "values of at most 512000"),
        ("t", {"location": "s3://b/" + "x" * 2056}, "locations of 1 to 2056"),
        ("t", {"location": "s3://b/\x00"}, "has a control character"),
    ],
)
async def test_invalid_declaration(
    server: FakeGlue, ns: AsyncNamespace, name: str, fields: dict[str, object], text: str
) -> None:
    with pytest.raises(err.InvalidInputError, match=text):
        await ns.declare_table({"id": ["db", name], **{"location": "s3://b/t", **fields}})
    with pytest.raises(err.InvalidInputError, match=text):
        request = {"id": ["db", name], "mode": "Overwrite", **{"location": "s3://b/t", **fields}}
        await ns.register_table(request)
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


async def test_without_anything_to_say_there_are_no_storage_options(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.add_table("", "db", "t")
    assert (await described(ns, "db", "t")).storage_options is None


async def test_a_missing_database_is_no_missing_table(server: FakeGlue, ns: AsyncNamespace) -> None:
    await catch(err.TableNotFoundError, described(ns, "db", "none"), r"^Table not found: db\$none ")
    await catch(err.NamespaceNotFoundError, described(ns, "none", "t"), r"^Namespace not found: none \(describe_table")
    with pytest.raises(err.NamespaceNotFoundError, match=r"^Namespace not found: none \(describe_table"):
        await ns.deregister_table(["none", "t"])
    assert server.calls == ["GetTable", "GetDatabase"] * 3


async def test_missing_table_in_a_denied_database(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.deny("GetDatabase")
    await catch(err.TableNotFoundError, described(ns, "db", "none"), r"^Table not found: db\$none ")


async def test_a_missing_database_that_a_server_lists_as_an_empty_one_is_missing() -> None:
    gone = http(400, '{"__type": "EntityNotFoundException", "message": "gone"}')
    async with Script(http(body='{"TableList": []}'), gone) as server:
        properties = {"endpoint": server.url, "region": "us-east-1", "access_key_id": "a", "secret_access_key": "s"}
        async with AsyncNamespace.connect("glue", {**properties, "catalogs": "off"}) as ns:
            await catch(err.NamespaceNotFoundError, ns.list_tables(["db"]), r"^Namespace not found: db ")


async def test_concurrent_misses_share_one_database_call(server: FakeGlue) -> None:
    server.delay(0.01)
    async with connected(server, bulk_strategy="get") as ns:
        result = await ns.describe_tables([["db", f"none{i}"] for i in range(32)])
    assert len(result.errors) == 32 and all(isinstance(e, err.TableNotFoundError) for e in result.errors.values())
    assert server.calls.count("GetTable") == 32 and server.calls.count("GetDatabase") < 16


async def test_a_denied_table_is_denied_and_spoils_no_other(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.add_tables("", "db", ["t", "u"])
    server.fail("AccessDeniedException", operation="GetTable", message="Insufficient Lake Formation permission(s)")
    result = await ns.describe_tables([["db", "t"], ["db", "u"]])
    assert len(result.tables) == 1
    [error] = result.errors.values()
    assert isinstance(error, err.PermissionDeniedError) and "Insufficient Lake Formation" in str(error)
    server.deny("GetTables")
    await catch(err.PermissionDeniedError, ns.list_tables(["db"]), r"^Permission denied: db ")


async def test_concurrent_declares_in_any_case_have_one_winner(server: FakeGlue, ns: AsyncNamespace) -> None:
    calls = (declared(ns, "db", name, location=f"s3://b/{name}") for name in ("t", "T", "tT", "Tt", "TT"))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes].count("TableAlreadyExistsError") == 3
