"""Rights of principals: each operation, on each table and namespace, over the wire."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import lance_namespace as spec
import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import Gateway, serving
from lance_ns_async.gateway.access import hash_of
from lance_ns_async.gateway.request_log import JsonFormatter
from lance_ns_async.gateway.request_log import log as request_log
from lance_ns_async.spec.routes import ROUTES, Route
from lance_ns_async.storage import watched_file
from tests.support.budget import with_usual
from tests.support.errors import catch
from tests.support.gateway import Response, send_request

READS = {
    *("list_namespaces", "describe_namespace", "namespace_exists", "list_tables", "list_all_tables", "describe_table"),
    *("table_exists", "count_table_rows", "query_table", "explain_table_query_plan", "analyze_table_query_plan"),
    *("list_table_indices", "describe_table_index_stats", "get_table_stats", "list_table_versions"),
    *("describe_table_version", "list_table_tags", "get_table_tag_version", "list_table_branches"),
    "describe_transaction",
}
REMOVES = {
    *("drop_namespace", "drop_table", "deregister_table", "rename_table", "alter_transaction", "restore_table"),
    *("batch_delete_table_versions", "delete_table_branch", "delete_table_tag", "drop_table_index"),
    "alter_table_drop_columns",
}
_QUERY = {"k": 1, "vector": {"single_vector": [0.5]}}
BODIES: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("query_table", "analyze_table_query_plan"), _QUERY),
    **{key: {"column": "a", "index_type": "BTREE"} for key in ("create_table_index", "create_table_scalar_index")},
    **{key: {"tag": "a", "version": 1} for key in ("create_table_tag", "update_table_tag")},
    **{key: {"tag": "a"} for key in ("get_table_tag_version", "delete_table_tag")},
    **{key: {"name": "a"} for key in ("create_table_branch", "delete_table_branch")},
    **{"alter_table_add_columns": {"new_columns": []}, "alter_table_alter_columns": {"alterations": []}},
    **{"alter_table_drop_columns": {"columns": ["a"]}, "alter_table_backfill_columns": {"column": "a"}},
    **{"batch_delete_table_versions": {"ranges": []}, "batch_create_table_versions": {"entries": []}},
    **{"batch_commit_tables": {"operations": []}, "update_field_metadata": {"updates": []}},
    **{"update_table": {"updates": [["a", "1"]]}, "delete_from_table": {"predicate": "a = 1"}},
    **{"register_table": {"location": "a"}, "restore_table": {"version": 1}, "alter_transaction": {"actions": [{}]}},
    "rename_table": {"new_table_name": "orders", "new_namespace_id": ["sales"]},
    "explain_table_query_plan": {"query": _QUERY},
    "create_table_version": {"version": 2, "manifest_path": "a"},
    "create_materialized_view": {"kind": "query", "source_query": "a", "output_schema": "a"},
}
"""The fields that an operation requires."""

TABLES = ("orders", "sales$orders", "sales$pub_a", "sales$eu$orders", "other$orders", "Sales$orders", "sales.x$orders")
NAMESPACES = ("$", "sales", "sales$eu", "other", "sale")
ONLY: Mapping[str, tuple[set[str], set[str], set[str]]] = {
    "sales.**": ({"sales$orders", "sales$pub_a", "sales$eu$orders"}, {"$", "sales", "sales$eu"}, {"sales", "sales$eu"}),
    "sales.pub_*": ({"sales$pub_a"}, {"$", "sales"}, set()),
    "sales.*": ({"sales$orders", "sales$pub_a"}, {"$", "sales"}, set()),
    "sales.eu.orders": ({"sales$eu$orders"}, {"$", "sales", "sales$eu"}, set()),
    "**.orders": (
        {"orders", "sales$orders", "sales$eu$orders", "other$orders", "Sales$orders", "sales.x$orders"},
        {*NAMESPACES},
        set(),
    ),
    "**": ({*TABLES}, {*NAMESPACES}, {*NAMESPACES}),
}
"""For each pattern the tables that match, and the namespaces that may be read, and those that may be changed."""


class Everything:
    """A namespace that has every operation, records the requests, and does nothing."""

    def __init__(self) -> None:
        self.operations: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not any(route.operation == name for route in ROUTES):
            raise AttributeError(name)

        async def call(request: object, rows: bytes = b"") -> object:
            self.operations.append(name)
            if name == "list_namespaces":
                return spec.ListNamespacesResponse(namespaces=[])
            if name in ("list_tables", "list_all_tables"):
                return spec.ListTablesResponse(tables=[])
            raise ServiceUnavailableError("the request has arrived")

        return call


@asynccontextmanager
async def gateway_for(
    namespace: object, folder: Path, principals: Mapping[str, Mapping[str, Any]], *, read_only: bool = False
) -> AsyncIterator[Gateway]:
    """Serves a namespace for principals whose tokens are their names."""
    file = folder / "tokens.toml"
    write_tokens(file, principals)
    async with serving(namespace, tokens=file, read_only=read_only, allow_locations=None) as gateway:
        yield gateway


def write_tokens(file: Path, principals: Mapping[str, Mapping[str, Any]]) -> None:
    lines = []
    for name, fields in principals.items():
        lines.append(f"[{name}]")
        lines += (f"{key} = {json.dumps(value)}" for key, value in {"sha256": [hash_of(name)], **fields}.items())
    file.write_text("\n".join(lines))


async def send(gateway: Gateway, name: str, route: Route, id: str, body: Mapping[str, Any] | None = None) -> Response:
    fields = {**BODIES.get(route.operation, {}), **(body or {})}
    target = route.path.replace("{id}", id).replace("{index_name}", "i")
    headers = {"x-lance-token": name}
    if route.body == "rows":
        return await send_request(gateway, route.method, f"{target}?on=a", b"", headers)
    return await send_request(gateway, route.method, target, None if route.method == "GET" else fields, headers)


@pytest.mark.parametrize("only", with_usual(["", *ONLY], "", "sales.pub_*", "**.orders"))
@pytest.mark.parametrize("rights", ["read", "write", "admin"])
async def test_each_operation_needs_its_right_and_its_table(rights: str, only: str, tmp_path: Path) -> None:
    fields = {"rights": rights, **({"only": [only]} if only else {})}
    tables, seen, changed = ONLY[only or "**"]
    namespace = Everything()
    async with gateway_for(namespace, tmp_path, {"someone": fields}) as gateway:
        for route in ROUTES:
            may_change = rights == "admin" or (rights == "write" and route.operation not in REMOVES)
            allowed = route.operation in READS or may_change
            if route.path.startswith("/v1/table/{id}"):
                ids, mine = list(TABLES), tables
            elif route.path.startswith("/v1/namespace/{id}"):
                ids, mine = list(NAMESPACES), seen if route.operation in READS else changed
            elif route.operation == "list_all_tables":
                ids, mine = [""], {""}
            elif route.operation.startswith("batch_"):
                continue
            else:
                ids, mine = ["sales$orders"], {"sales$orders"} if only in ("", "**") else set()
            for id in ids:
                namespace.operations.clear()
                # A location could be that of another table, so that those with a pattern may not register.
                places = route.operation == "register_table" and only
                answer = await send(gateway, "someone", route, id)
                if allowed and id in mine and not places and (route.operation != "rename_table" or _may_name(only)):
                    assert answer.status in (200, 503) and namespace.operations == [route.operation], (route, id)
                else:
                    assert (answer.status, answer.code) == (403, 15), (route, id, answer)
                    assert namespace.operations == []


def _may_name(only: str) -> bool:
    """Returns whether a table may be renamed to `sales.orders`."""
    return not only or "sales$orders" in ONLY[only][0]


A, ELSEWHERE = ["sales", "a"], {"location": "file:///elsewhere/t"}


def _entry(id: Sequence[str]) -> Mapping[str, Any]:
    return {"id": id, "version": 2, "manifest_path": "a"}


@pytest.mark.parametrize(
    ("operation", "body", "rights", "is_allowed"),
    [
        ("batch_create_table_versions", {"entries": [_entry(["sales", "a"]), _entry(["sales", "b"])]}, "write", True),
        ("batch_create_table_versions", {"entries": [_entry(["sales", "a"]), _entry(["other", "b"])]}, "write", False),
        ("batch_create_table_versions", {"entries": [_entry(["sales", "a"])]}, "read", False),
        ("batch_create_table_versions", {"entries": []}, "write", False),
        ("batch_commit_tables", {"operations": [{"declare_table": {"id": ["sales", "a"]}}]}, "write", True),
        ("batch_commit_tables", {"operations": [{"declare_table": {"id": ["other", "a"]}}]}, "admin", False),
        ("batch_commit_tables", {"operations": [{"declare_table": {"id": A, **ELSEWHERE}}]}, "admin", False),
        ("batch_commit_tables", {"operations": [{"deregister_table": {"id": ["sales", "a"]}}]}, "write", False),
        ("batch_commit_tables", {"operations": [{"deregister_table": {"id": ["sales", "a"]}}]}, "admin", True),
        ("batch_commit_tables", {"operations": [{"delete_table_versions": {"id": A, "ranges": []}}]}, "write", False),
        ("create_namespace", {"mode": "overwrite"}, "write", False),
        ("create_namespace", {"mode": "overwrite"}, "admin", True),
        ("create_namespace", {"properties": {"location": "file:///elsewhere"}}, "admin", False),
        ("declare_table", ELSEWHERE, "admin", False),
        ("declare_table", {"properties": {"write.data.path": "file:///elsewhere/t"}}, "admin", False),
        ("rename_table", {"new_namespace_id": ["other"]}, "admin", False),
        ("rename_table", {"new_namespace_id": None}, "admin", True),
    ],
)
async def test_names_in_bodies_need_rights(
    operation: str, body: Mapping[str, Any], rights: str, is_allowed: bool, tmp_path: Path
) -> None:
    (route,) = (route for route in ROUTES if route.operation == operation)
    namespace = Everything()
    async with gateway_for(namespace, tmp_path, {"someone": {"rights": rights, "only": ["sales.**"]}}) as gateway:
        answer = await send(gateway, "someone", route, "sales$orders", body)
    assert answer.status == (503 if is_allowed else 403), answer
    assert namespace.operations == ([operation] if is_allowed else [])


async def test_a_server_for_reading_refuses_changes_of_everyone(tmp_path: Path) -> None:
    namespace = Everything()
    async with gateway_for(namespace, tmp_path, {"boss": {"rights": "admin"}}, read_only=True) as gateway:
        for route in ROUTES:
            namespace.operations.clear()
            answer = await send(gateway, "boss", route, "sales$orders")
            assert (answer.status == 403) is (route.operation not in READS), route
            assert answer.status != 403 or "this server is read-only" in answer.json["error"]
            assert namespace.operations == ([route.operation] if route.operation in READS else [])
    async with serving(namespace, token="own", read_only=True) as gateway:
        assert (await send_request(gateway, "POST", "/v1/table/t/drop", {})).status == 403


async def test_listings_show_what_one_may_use_and_fill_their_pages(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as ns:
        for name in ("sales", "other", "empty"):
            await ns.create_namespace({"id": [name]})
        names = [f"{kind}{n:02}" for n in range(30) for kind in ("a", "b")]
        for name in names:
            await ns.declare_table({"id": ["sales", name]})
        await ns.declare_table({"id": ["other", "a1"]})
        principals = {"some": {"rights": "read", "only": ["sales.b*"]}, "all": {"rights": "read", "only": ["sales.**"]}}
        async with gateway_for(ns, tmp_path, principals) as gateway:

            async def pages(name: str, target: str, field: str) -> tuple[list[str], list[int]]:
                """Returns all entries of a listing, and the number of those in each page."""
                found: list[str] = []
                sizes, more = [], ""
                while True:
                    answer = await send_request(gateway, "GET", f"{target}{more}", headers={"x-lance-token": name})
                    found += answer.json[field]
                    sizes.append(len(answer.json[field]))
                    if not answer.json.get("page_token"):
                        return found, sizes
                    more = f"&page_token={answer.json['page_token']}"

            visible = sorted(name for name in names if name.startswith("b"))
            found, sizes = await pages("some", "/v1/namespace/sales/table/list?limit=7", "tables")
            assert found == visible and sizes[:4] == [7, 7, 7, 7]
            assert await pages("some", "/v1/namespace/sales/table/list?", "tables") == (visible, [30])
            found, _ = await pages("some", "/v1/table?limit=11", "tables")
            assert found == [f"sales${it}" for it in visible]
            found, _ = await pages("all", "/v1/namespace/sales/table/list?limit=9", "tables")
            assert found == sorted(names)
            for limit in (0, -1):
                target = f"/v1/namespace/sales/table/list?limit={limit}"
                assert (await send_request(gateway, "GET", target, headers={"x-lance-token": "some"})).status == 400
            for name in principals:
                assert await pages(name, "/v1/namespace/$/list?limit=1", "namespaces") == (["sales"], [1])
                target = "/v1/namespace/other/table/list"
                answer = await send_request(gateway, "GET", target, headers={"x-lance-token": name})
                assert answer.status == 403 and "a1" not in answer.body.decode()


async def test_credentials_are_for_those_who_have_them(tmp_path: Path) -> None:
    properties = {"root": str(tmp_path / "lake"), "storage.secret_access_key": "hush-hush"}
    async with AsyncNamespace.connect("dir", properties) as ns:
        await ns.declare_table({"id": ["t"]})
        with_and_without: Mapping[str, Mapping[str, Any]] = {
            "with": {"rights": "read", "credentials": True},
            "without": {"rights": "admin"},
        }
        async with gateway_for(ns, tmp_path, with_and_without) as gateway:
            for name in with_and_without:
                answer = await send_request(gateway, "POST", "/v1/table/t/describe", {}, {"x-lance-token": name})
                assert answer.status == 200 and (b"hush-hush" in answer.body) is (name == "with")
            answer = await send_request(gateway, "POST", "/v1/table/u/declare", {}, {"x-lance-token": "without"})
            assert answer.status == 200 and b"hush-hush" not in answer.body


async def test_tokens_are_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The file is looked at for each request.
    monkeypatch.setattr(watched_file, "_FRESH", 0.0)
    file = tmp_path / "tokens.toml"
    async with gateway_for(Everything(), tmp_path, {"first": {"rights": "read"}}) as gateway:

        async def status(name: str) -> int:
            return (await send_request(gateway, "GET", "/v1/namespace/$/list", headers={"x-lance-token": name})).status

        assert gateway.token == "" and gateway.headers == {}
        assert (await status("first"), await status("second")) == (200, 401)
        write_tokens(file, {"second": {"rights": "read"}})
        assert (await status("first"), await status("second")) == (401, 200)
        # A file that is being edited changes nothing.
        file.write_text("[second")
        assert (await status("first"), await status("second")) == (401, 200)
        file.unlink()
        assert await status("second") == 200 and "stays in use" in caplog.text
        write_tokens(file, {})
        assert await status("second") == 401


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[a", "not a TOML file"),
        ("a = 1", "a: must be a table"),
        ("[a]", "rights is missing: must be one of read, write, admin"),
        ('[a]\nrights = "root"', "rights 'root'"),
        ('[a]\nrights = "read"\nonly = []', "only: must not be empty"),
        ('[a]\nrights = "read"\nonly = "sales.**"', "only: must be a list"),
        ('[a]\nrights = "read"\nonly = [1]', "only: must be a list"),
        ('[a]\nrights = "read"\nonly = ["a..b"]', "an empty name"),
        ('[a]\nrights = "read"\nonly = [""]', "an empty name"),
        ('[a]\nrights = "read"\nonly = ["$"]', "an empty name"),
        ('[a]\nrights = "read"\nalso = ["a"]', "also: no such field"),
        ('[a]\nrights = "read"\nsha256 = ["abc"]', "64 hexadecimal digits"),
        ('[a]\nrights = "read"\ncredentials = "no"', "credentials 'no'"),
        ('["a b"]\nrights = "read"', "'a b': use letters"),
        ("oidc = [1]", "[[oidc]] number 1: must be a table"),
        ('[[oidc]]\nrights = "read"', "[[oidc]] number 1: claims: must be a table of claims"),
        ('[[oidc]]\nrights = "read"\nclaims = {}', "claims: must be a table of claims"),
        ('[[oidc]]\nrights = "read"\nclaims = { a = ["b"] }', "claims: a: must be one value, not a list; write a rule"),
        ('[[oidc]]\nrights = "read"\nclaims = { a.b = 0.5 }', "claims: a: b: must be a text, a whole number, true"),
        ('[[oidc]]\nrights = "read"\nclaims.a = 1\n[[oidc]]\nclaims.a = 1', "number 2: rights is missing"),
        ('[oidc]\nrights = "read"\nclaims = { a = "b" }', "oidc: write [[oidc]], with two brackets"),
        ('[[oidc]]\nrights = "root"\nclaims = { a = "b" }', "number 1: rights 'root'"),
        ('[[oidc]]\nrights = "read"\nclaims = { a = "b" }\nsha256 = []', "sha256: no such field"),
        (f'[a]\nrights = "read"\nsha256 = ["{"0" * 64}"]\n[b]\nrights = "read"\nsha256 = ["{"0" * 64}"]', "b has the"),
    ],
)
async def test_a_malformed_file_of_tokens_is_an_error(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(content)
    with pytest.raises(InvalidInputError) as caught:
        async with serving(Everything(), tokens=file):
            pass
    assert message in str(caught.value) and str(file) in str(caught.value)


async def test_each_request_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, request_log.name)
    async with gateway_for(Everything(), tmp_path, {"ann": {"rights": "read", "only": ["db.**"]}}) as gateway:
        headers = {"x-lance-token": "ann", "X-Request-Id": "abc-1"}
        answer = await send_request(gateway, "POST", "/v1/table/db$t/describe", {}, headers)
        assert answer.headers["x-request-id"] == "abc-1"
        await send_request(gateway, "POST", "/v1/table/other$t/drop", {"context": {"key": "hush-hush"}}, headers)
        await send_request(gateway, "POST", "/v1/table/db$t/describe", {}, {"x-lance-token": "hush-hush"})
        hostile = await send_request(
            gateway, "GET", "/v1/%0Aforged?token=hush-hush", None, {**headers, "X-Request-Id": "a b"}
        )
        assert len(hostile.headers["x-request-id"]) == 32
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name == request_log.name]
    assert [(it["principal"], it["operation"], it["id"], it["status"]) for it in lines] == [
        *(("ann", "describe_table", "db$t", answer.status), ("ann", "drop_table", "other$t", 403)),
        (None, "POST /v1/table/db$t/describe", None, 401),
        ("ann", "GET /v1/%0Aforged", None, 404),
    ]
    assert all(it["client"] == "127.0.0.1" and it["ms"] >= 0 and it["time"].startswith("20") for it in lines)
    assert lines[0]["request_id"] == "abc-1" and "hush-hush" not in caplog.text


async def test_ready_means_that_the_catalog_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Everything):
        is_down = False
        calls = 0

        async def list_namespaces(self, request: object) -> object:
            self.calls += 1
            if self.is_down:
                raise ServiceUnavailableError("it is down")
            return spec.ListNamespacesResponse(namespaces=[])

    now = time.monotonic()
    monkeypatch.setattr("lance_ns_async.gateway.server.monotonic", lambda: now)
    namespace = Failing()
    async with serving(namespace) as gateway:
        for method in ("GET", "HEAD", "GET"):
            assert (await send_request(gateway, method, "/ready", token=False)).status == 200
        assert namespace.calls == 1
        namespace.is_down = True
        now += 3
        answer = await send_request(gateway, "GET", "/ready", token=False)
        assert answer.status == 503 and "it is down" not in answer.body.decode()
        assert (await send_request(gateway, "HEAD", "/health", token=False)).body == b""


async def test_a_change_is_logged_even_if_the_client_leaves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, request_log.name)
    started, may_end = asyncio.Event(), asyncio.Event()

    class Slow(Everything):
        async def drop_table(self, request: object) -> object:
            started.set()
            await may_end.wait()
            return spec.DropTableResponse()

    async with gateway_for(Slow(), tmp_path, {"bob": {"rights": "admin"}}) as gateway:
        request = asyncio.create_task(send_request(gateway, "POST", "/v1/table/t/drop", {}, {"x-lance-token": "bob"}))
        await started.wait()
        request.cancel()
        await catch(asyncio.CancelledError, request)
        may_end.set()
    (line,) = (json.loads(JsonFormatter().format(it)) for it in caplog.records if it.name == request_log.name)
    assert (line["principal"], line["operation"], line["id"], line["status"]) == ("bob", "drop_table", "t", 200)


@pytest.mark.parametrize("data_operations", ["local", "remote"])
async def test_an_error_over_rest_says_its_reason_once(tmp_path: Path, data_operations: str) -> None:
    """The response has the phrase, the subject and the operation, as the client's error does."""
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as ns:
        await ns.create_namespace({"id": ["db"]})
        async with gateway_for(ns, tmp_path, {"ann": {"rights": "read", "only": ["db.**"]}}) as gateway:
            properties = {"uri": gateway.url, "auth_token": "ann", "data_operations": data_operations}
            async with AsyncNamespace.connect("rest", properties) as client:

                async def error(operation: str, *id: str) -> str:
                    caught = await catch(LanceNamespaceError, getattr(client, operation)({"id": [*id]}))
                    return str(caught.value).partition(" (X-Request-ID")[0]

                errors = [
                    await error("describe_table", "other", "t"),
                    await error("drop_namespace", "db"),
                    await error("describe_table", "db", "t"),
                ]
    assert errors == [
        "Permission denied: other$t (describe_table: HTTP 403: ann may use db.** only",
        "Permission denied: db (drop_namespace: HTTP 403: ann has the right 'read', and this requires 'admin'",
        "Table not found: db$t (describe_table: HTTP 404: there is no table of that name",
    ]
