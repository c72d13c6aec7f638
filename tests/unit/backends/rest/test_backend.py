"""Operations of the protocol on a server, and the behaviour for servers that lack one or respond differently.
Tables at the root of pylance's own server, which spells their locations in two ways. Credentials of tables from a REST
server, requested by many readers at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance.namespace import RestAdapter

from lance_ns_async import AsyncNamespace, Namespace, NamespaceId, TableId
from lance_ns_async.backends.rest import wire
from lance_ns_async.errors import AnotherAnswerError
from tests.fakes.rest import FakeGravitino, FakeRest
from tests.support.errors import catch
from tests.support.running import running


@asynccontextmanager
async def connect(server: FakeRest, **properties: str) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("rest", {"uri": server.url, "backoff_initial": "0", **properties}) as ns:
        yield ns


async def test_each_operation_is_one_call_of_the_protocol(server: FakeRest, ns: AsyncNamespace) -> None:
    await ns.create_namespace({"id": ["a"], "properties": {"k": "v"}})
    await ns.declare_table({"id": ["a", "t"], "properties": {"k": "v"}})
    table = await ns.describe_table({"id": ["a", "t"]})
    await ns.rename_table({"id": ["a", "t"], "new_table_name": "u"})
    await ns.deregister_table({"id": ["a", "u"]})
    await ns.register_table({"id": ["a", "u"], "location": "s3://b/u"})
    await ns.drop_namespace({"id": ["a"], "behavior": "Cascade"})
    assert (table.location, table.properties) == ("s3://lake/a/t", {"k": "v"})
    assert server.operations() == [
        "namespace/create",
        *("namespace/describe", "table/declare"),
        "table/describe",
        *("table/describe", "table/rename"),
        *("table/describe", "table/deregister"),
        *("namespace/describe", "table/register"),
        "namespace/drop",
    ]
    assert server.namespaces == {(): {}} and not server.tables


async def test_a_request_has_its_id_in_the_path_and_in_the_body(server: FakeRest) -> None:
    server.add_table("a b", "é$", "t")
    async with connect(server, delimiter="::") as ns:
        await ns.describe_table({"id": ["a b", "é$", "t"], "vend_credentials": True})
    (request,) = server.requests
    assert request.path == "/v1/table/a%20b%3A%3A%C3%A9%24%3A%3At/describe?delimiter=%3A%3A"
    assert request.json == {"id": ["a b", "é$", "t"], "vend_credentials": True}


async def test_credentials_are_requested_only_where_they_are_needed() -> None:
    with FakeRest(credentials={"key": "vended"}) as server:
        server.add_table("a", "t")
        async with connect(server, **{"storage.key": "own", "storage.region": "eu"}) as ns:
            plain = await ns.describe_table({"id": ["a", "t"]})
            with_credentials = await ns.describe_table({"id": ["a", "t"], "vend_credentials": True})
        async with connect(server, vend_credentials="true") as ns:
            by_default = await ns.describe_table({"id": ["a", "t"]})
    assert plain.storage_options == {"key": "own", "region": "eu"}
    assert with_credentials.storage_options == {"key": "vended", "region": "eu"}
    assert by_default.storage_options == {"key": "vended"}
    assert "vend_credentials" not in server.requests[0].json


async def test_listings_are_read_in_the_servers_pages(server: FakeRest, ns: AsyncNamespace) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        server.add_table("a", name)
    first = await ns.list_tables({"id": ["a"], "limit": 2})
    rest = await ns.list_tables({"id": ["a"], "page_token": first.page_token})
    all_tables = [id async for id in ns.iter_tables(recursive=True)]
    assert [*first.tables, *rest.tables] == names and rest.page_token is None
    assert all_tables == [TableId(["a", name]) for name in names]
    assert [it.path.partition("?")[2] for it in server.requests[:2]] == [
        f"delimiter=%24&{it}=2" for it in ("limit", "page_token")
    ]


async def test_an_empty_listing_or_a_missing_path_is_explained(server: FakeRest, ns: AsyncNamespace) -> None:
    server.reply('{"tables": []}', match="GET /v1/namespace/none/table/list")
    with pytest.raises(err.NamespaceNotFoundError, match=r"^Namespace not found: none \(list_tables"):
        await ns.list_tables({"id": ["none"]})
    server.add_table("a", "t")
    server.fail(404, match="describe", body="<html>no such page</html>")
    with pytest.raises(err.UnsupportedOperationError, match=r"no such page.*is the endpoint right"):
        await ns.describe_table({"id": ["a", "t"]})
    # A path that is required for everything is requested again: a proxy may have been restarted.
    assert await ns.exists(["a", "t"])


@pytest.mark.parametrize("fake", [FakeRest, FakeGravitino, partial(FakeRest, dialect="gravitino-1.1")])
async def test_errors_are_those_of_the_spec(fake: Callable[[], FakeRest]) -> None:
    cases: list[tuple[str, dict[str, Any], type[err.LanceNamespaceError]]] = [
        ("describe_table", {"id": ["c", "a", "none"]}, err.TableNotFoundError),
        ("describe_namespace", {"id": ["c", "none"]}, err.NamespaceNotFoundError),
        ("create_namespace", {"id": ["c", "a"]}, err.NamespaceAlreadyExistsError),
        ("create_namespace", {"id": ["none", "b"]}, err.NamespaceNotFoundError),
        ("drop_namespace", {"id": ["c", "a"]}, err.NamespaceNotEmptyError),
        ("drop_namespace", {"id": ["c", "none"]}, err.NamespaceNotFoundError),
        ("declare_table", {"id": ["c", "a", "t"]}, err.TableAlreadyExistsError),
        ("declare_table", {"id": ["c", "none", "t"]}, err.NamespaceNotFoundError),
        ("register_table", {"id": ["c", "a", "t"], "location": "s3://b/t"}, err.TableAlreadyExistsError),
        ("deregister_table", {"id": ["c", "a", "none"]}, err.TableNotFoundError),
    ]
    with fake() as server:
        server.add_table("c", "a", "t")
        async with connect(server) as ns:
            for operation, request, error in cases:
                await catch(error, getattr(ns, operation)(request))
        async with connect(server, auth_token="t") as ns:
            assert await ns.exists(["c", "a", "t"])


@pytest.mark.parametrize("mode", ["create", "exist_ok"])
async def test_a_namespace_that_another_call_created_first_exists(mode: str) -> None:
    """Gravitino reports a lost race as its own fault."""
    trace = "org.apache.gravitino.exceptions.SchemaAlreadyExistsException: s\n\tat org.apache.A.b(A.java:1)"
    body = {"error": f"Failed to operate schema(s) [s] operation [CREATE], reason [{trace}]", "code": 18}
    async with running(connect, FakeGravitino()) as (server, ns):
        server.namespaces |= {("cat",): {}, ("cat", "s"): {"owner": "other"}}
        server.reply(json.dumps(body), status=500, match="create")
        request = {"id": ["cat", "s"], "mode": mode}
        if mode == "exist_ok":
            assert (await ns.create_namespace(request)).properties == {"owner": "other"}
        else:
            await catch(err.NamespaceAlreadyExistsError, ns.create_namespace(request), "created by another call")


async def test_a_location_has_no_slash_at_its_end() -> None:
    async with running(connect, FakeGravitino()) as (server, ns):
        server.namespaces |= {("cat",): {}, ("cat", "s"): {}}
        assert (await ns.register_table({"id": ["cat", "s", "t"], "location": "s3://b/t"})).location == "s3://b/t"
        assert (await ns.describe_table({"id": ["cat", "s", "t"]})).location == "s3://b/t"
    assert server.tables["cat", "s", "t"]["location"] == "s3://b/t/"


async def test_a_server_of_the_first_protocol_version_works() -> None:
    async with running(connect, FakeRest(dialect="gravitino-1.1"), min_depth="2", max_depth="2") as (server, ns):
        server.namespaces |= {("cat",): {}, ("cat", "db"): {}}
        response = await ns.declare_table({"id": ["cat", "db", "t"]})
        await ns.declare_table({"id": ["cat", "db", "u"]})
        tables = [id async for id in ns.iter_tables(recursive=True)]
        with pytest.raises(err.UnsupportedOperationError, match=r"^Not supported: cat\$db\$t \(rename_table: HTTP"):
            await ns.rename_table({"id": ["cat", "db", "t"], "new_table_name": "v"})
    assert response.location == "s3://lake/cat/db/t"
    assert tables == [TableId(["cat", "db", "t"]), TableId(["cat", "db", "u"])]
    declarations = [it for it in server.operations() if it in ("table/declare", "table/create-empty")]
    assert declarations == ["table/declare", "table/create-empty", "table/create-empty"]


@pytest.mark.parametrize("status", [404, 405, 406, 501])
async def test_an_operation_that_the_server_lacks_is_asked_for_once(server: FakeRest, status: int) -> None:
    server.add_table("a", "t")
    server.fail(status, match="rename", body="<html>nothing here</html>")
    async with connect(server) as ns:
        for _ in range(2):
            with pytest.raises(err.UnsupportedOperationError, match=r"^Not supported: a\$t \(rename_table: "):
                await ns.rename_table({"id": ["a", "t"], "new_table_name": "u"})
    async with connect(server) as ns:
        await ns.rename_table({"id": ["a", "t"], "new_table_name": "u"})
    assert server.operations().count("table/rename") == 2 and ("a", "u") in server.tables


async def test_refused_cascade(server: FakeRest, ns: AsyncNamespace) -> None:
    server.add_table("a", "t")
    server.reply('{"error": "a", "code": 3}', status=409, match="drop")
    with pytest.raises(err.InvalidInputError, match="the server drops empty namespaces only; drop what is in a first"):
        await ns.drop_namespace({"id": ["a"], "behavior": "Cascade"})
    await ns.drop_namespace({"id": ["a"], "behavior": "Cascade"})
    assert not await ns.exists(NamespaceId(["a"]))


@pytest.mark.parametrize("replaces", [True, False])
async def test_a_registration_is_replaced_where_the_server_does_so(replaces: bool) -> None:
    async with running(connect, FakeRest(replaces=replaces)) as (server, ns):
        server.add_table("a", "t", location="s3://b/old")
        request = {"id": ["a", "t"], "location": "s3://b/new", "mode": "Overwrite"}
        if replaces:
            assert (await ns.register_table(request)).location == "s3://b/new"
        else:
            with pytest.raises(err.UnsupportedOperationError, match="deregister it and register it at s3://b/new"):
                await ns.register_table(request)
        table = await ns.describe_table({"id": ["a", "t"]})
    assert table.location == ("s3://b/new" if replaces else "s3://b/old")


async def test_an_answer_of_another_form_is_an_error_and_a_repeated_location_looked_up(
    server: FakeRest, ns: AsyncNamespace
) -> None:
    server.reply("[]", match="describe")
    await catch(err.InternalError, ns.exists(["a", "t"]), "an answer of unknown form")
    server.namespaces[("a",)] = {}
    server.reply('{"location": "folder"}', match="register", when="after")
    assert (await ns.register_table({"id": ["a", "t"], "location": "folder"})).location == "folder"
    assert server.operations()[-1] == "table/describe"


ROWS = pa.table({"x": [1, 2]})


async def test_a_table_at_the_root_is_created_and_replaced(tmp_path: Path) -> None:
    """The server declares it at `file:///x/t.lance`, and describes it at `/x/t.lance`."""
    (root := tmp_path / "with space").mkdir()
    with RestAdapter("dir", {"root": str(root)}, port=0) as server:
        async with AsyncNamespace.connect("rest", {"uri": f"http://127.0.0.1:{server.port}"}) as ns:
            await ns.write(["t"], ROWS)
            await ns.write(["t"], ROWS, mode="append")
            await ns.write(["t"], ROWS, mode="overwrite")
            assert (await ns.open(["t"])).to_table().equals(ROWS)
            await ns.drop_table({"id": ["t"]})
            assert not await ns.exists(["t"])


READERS = 64
HOUR = 3_600_000
TABLES = (["a", "t"], ["a", "u"])


def vending_server() -> FakeRest:
    """Returns a server with two tables, whose keys are valid for an hour."""
    expiry = str(int(time.time() * 1000) + HOUR)
    server = FakeRest(credentials={"aws_access_key_id": "key", "expires_at_millis": expiry})
    for id in TABLES:
        server.add_table(*id)
    return server


async def test_concurrent_refreshes_of_a_table_share_one_request() -> None:
    with vending_server() as server:
        async with AsyncNamespace.connect("rest", {"uri": server.url}) as ns:
            with server.hold("a%24t/") as hold, server.hold("a%24u/") as other_hold:
                async with asyncio.TaskGroup() as group:
                    requests = [{"id": id, "vend_credentials": True} for id in TABLES for _ in range(READERS)]
                    tasks = [group.create_task(ns.describe_table(request)) for request in requests]
                    await hold.reached()
                    await other_hold.reached()
                    hold.release()
                    other_hold.release()
    assert list(Counter(request.path for request in server.requests).values()) == [1, 1]
    assert {task.result().location for task in tasks} == {"s3://lake/a/t", "s3://lake/a/u"}
    assert all((task.result().storage_options or {})["aws_access_key_id"] == "key" for task in tasks)


def test_refreshes_in_threads_that_fail_share_one_request() -> None:
    with vending_server() as server, Namespace("rest", {"uri": server.url}) as ns:
        server.fail(403, times=None)
        start = Barrier(READERS)

        def refresh(_: int) -> str:
            start.wait()
            with pytest.raises(err.PermissionDeniedError) as caught:
                ns.describe_table({"id": TABLES[0], "vend_credentials": True})
            return str(caught.value)

        with ThreadPoolExecutor(READERS) as threads:
            assert len(set(threads.map(refresh, range(READERS)))) == 1
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("names", "delimiter", "reason"),
    [
        *((names, "$", "set the property delimiter") for names in (["a$b", "t"], ["a", "$"])),
        *((["a$", "$b"], "$$", "set the property delimiter"), (["a.b"], ".", "set the property delimiter")),
        *((["."], "$", "proxies rewrite it"), ([".."], "$", "proxies rewrite it")),
    ],
)
def test_a_name_that_would_be_read_as_another_is_refused(names: list[str], delimiter: str, reason: str) -> None:
    with pytest.raises(err.InvalidInputError, match=reason):
        wire.path_segment(NamespaceId(names), delimiter)


LOST = "Failed\norg.SchemaAlreadyExistsException: s\n\tat org.A.b(A.java:1)\n\tat c"
NO_TABLE, NO_PATH, NONE = "NoSuchTableException", "NotFoundException", "HTTP 404 Not Found"


@pytest.mark.parametrize(
    ("body", "codes", "message"),
    [
        ({"error": "a$t", "code": 4}, ("TABLE_NOT_FOUND",), "a$t"),
        ({"error": None, "code": 1, "detail": "no a"}, ("NAMESPACE_NOT_FOUND",), "no a"),
        ({"code": 17}, ("SERVICE_UNAVAILABLE",), ""),
        ({"error": "x", "code": 999}, (), "x"),
        ({"error": "Not supported: x, /home/x/a.rs:292:13", "code": 18}, ("UNSUPPORTED",), "Not supported: x"),
        ({"error": "S is not empty.", "code": 13}, (wire.NOT_EMPTY, "INVALID_INPUT"), "S is not empty."),
        ({"error": LOST, "code": 18}, ("lost race", "INTERNAL"), "Failed\norg.SchemaAlreadyExistsException: s"),
        ({"error": "a$t is no Lance table: it", "code": 13}, (wire.NOT_LANCE,), "a$t is no Lance table: it"),
        ({"error": "gone", "code": 404, "type": NO_TABLE}, (NO_TABLE, wire.OLD_NOT_FOUND), f"{NO_TABLE}: gone"),
        ({"error": "there", "code": 409}, (wire.OLD_CONFLICT,), "there"),
        ({"error": NONE, "code": 500, "type": NO_PATH}, (wire.NO_OPERATION, "UNSUPPORTED"), NONE),
    ],
)
def test_errors_are_read_as_new_and_old_servers_write_them(body: Any, codes: tuple[str, ...], message: str) -> None:
    assert wire.read_error(body) == (codes, message)


@pytest.mark.parametrize("body", [{}, {"error": "x"}, {"code": "4"}, {"code": True}, [], None, "x"])
def test_another_form_of_errors_is_unknown(body: Any) -> None:
    with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
        wire.read_error(body)


def test_a_table_has_what_the_response_says_and_only_its_own_removal_is_taken() -> None:
    body: Any = {"location": "s3://b/t", "storage_options": {"a": "2"}, "managed_versioning": True, "version": 3}
    table = wire.table(TableId(["n", "t"]), {"a": "1", "b": "1"}, body)
    assert (table.location, table.properties, table.storage_options) == ("s3://b/t", None, {"a": "2", "b": "1"})
    assert table.managed_versioning and table.version == 3
    plain = wire.table(TableId(["n", "t"]), None, {"location": "s3://b/t", "properties": {}, "version": 3})
    assert (plain.properties, plain.storage_options, plain.version) == ({}, None, None)
    for body in (None, {}, {"id": ["n", "t"], "location": "s3://b/t"}, {"transaction_id": "1"}):
        wire.check_removed(TableId(["n", "t"]), body)
    others: tuple[Any, ...] = ({"id": ["n", "u"]}, {"tables": []}, {"namespaces": []}, {"table": "t"})
    for body in others:
        with pytest.raises(AnotherAnswerError):
            wire.check_removed(TableId(["n", "t"]), body)


@pytest.mark.parametrize(
    "names", [{"table": "u"}, {"table": "t", "namespace": ["m"]}, {"namespace": ["n", "m"], "table": "t"}]
)
def test_a_response_about_another_table_is_not_taken(names: dict[str, Any]) -> None:
    with pytest.raises(AnotherAnswerError):
        wire.table(TableId(["n", "t"]), None, {"location": "s3://b/t", **names})
