"""Requests to a gateway as bytes: paths, queries and bodies."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import lance_namespace as spec
import pytest
from lance_namespace_urllib3_client import api

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import Gateway, openapi, serving
from lance_ns_async.spec.routes import BY_OPERATION, ROUTES
from tests.support.gateway import send_bytes, send_request

ANSWERS: dict[str, Callable[[Any], Any]] = {
    "describe_table": lambda request: spec.DescribeTableResponse(location="here"),
    "list_tables": lambda request: spec.ListTablesResponse(tables=[]),
    "drop_table_index": lambda request: spec.DropTableIndexResponse(),
    "create_table": lambda request: spec.CreateTableResponse(),
    "merge_insert_into_table": lambda request: spec.MergeInsertIntoTableResponse(),
    "update_table_schema_metadata": lambda request: spec.UpdateTableSchemaMetadataResponse(metadata=request.metadata),
}


class Keeper:
    """A namespace that records its requests."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.rows = b""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ANSWERS:
            raise AttributeError(name)

        async def keep(request: Any, request_data: bytes = b"") -> Any:
            self.requests.append(request)
            self.rows = request_data
            return ANSWERS[name](request)

        return keep


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


@pytest.fixture
async def gateway(keeper: Keeper) -> AsyncIterator[Gateway]:
    async with serving(keeper, allow_locations=None) as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("path", "id"),
    [
        *(("a$b", ["a", "b"]), ("a%24b", ["a", "b"]), ("a%2Fb%24c", ["a/b", "c"]), ("a%20b%24c+d", ["a b", "c d"])),
        *(("a%2Bb", ["a+b"]), ("%C3%A9%24%25", ["é", "%"]), ("a.b", ["a.b"]), ("%2E%2E%24..", ["..", ".."])),
        *(("batch-commit", ["batch-commit"]), ("table", ["table"]), ("$", []), ("%24", []), ("", [])),
        *(("a%1Fb?delimiter=%1F", ["a", "b"]), ("a$b?delimiter=%1F", ["a$b"]), ("a--b?delimiter=--", ["a", "b"])),
        (".?delimiter=.", []),
    ],
)
async def test_a_path_names_what_it_says(gateway: Gateway, keeper: Keeper, path: str, id: list[str]) -> None:
    name, _, query = path.partition("?")
    assert (await send_request(gateway, "GET", f"/v1/namespace/{name}/table/list?{query}")).status == 200
    assert keeper.requests[-1].id == id


@pytest.mark.parametrize(
    ("path", "id"),
    [
        ("a%24b", ["a", "b"]),
        # Only the body can show that one of several names contains the delimiter.
        ("a%24b%24c", ["a$b", "c"]),
        ("a+b%2Fc", ["a b/c"]),
        ("a+b", ["a+b"]),
        *((it, []) for it in ("%24", "$")),
    ],
)
async def test_the_id_of_a_body_is_taken(gateway: Gateway, keeper: Keeper, path: str, id: list[str]) -> None:
    assert (await send_request(gateway, "POST", f"/v1/table/{path}/describe", {"id": id})).status == 200
    assert keeper.requests[-1].id == id


async def test_an_id_of_one_name_is_that_of_the_path(gateway: Gateway, keeper: Keeper) -> None:
    assert (await send_request(gateway, "POST", "/v1/table/a%24b/describe", {"id": ["a$b"]})).status == 200
    assert keeper.requests[-1].id == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "id"), [("a", ["b"]), ("a", ["a", "b"]), ("a%24b", ["b", "a"]), ("a", []), ("$", ["a"])]
)
async def test_a_path_and_a_body_that_differ_are_refused(gateway: Gateway, path: str, id: list[str]) -> None:
    response = await send_request(gateway, "POST", f"/v1/table/{path}/describe", {"id": id})
    assert (response.status, response.code) == (400, 13) and "the body has" in response.json["error"]


async def test_an_index_is_named_by_the_path(gateway: Gateway, keeper: Keeper) -> None:
    assert (await send_request(gateway, "POST", "/v1/table/t/index/a%2Fb+c/drop?branch=side")).status == 200
    request = keeper.requests[-1]
    assert (request.id, request.index_name, request.branch) == (["t"], "a/b c", "side")
    assert (await send_request(gateway, "POST", "/v1/table/t/index/a/drop", {"index_name": "b"})).status == 400


async def test_fields_come_by_query_or_by_body(gateway: Gateway, keeper: Keeper) -> None:
    query = "with_table_uri=True&check_declared=false&version=3&tag=a+b"
    await send_request(gateway, "POST", f"/v1/table/t/describe?{query}", {})
    request = keeper.requests[-1]
    assert (request.with_table_uri, request.check_declared, request.version, request.tag) == (True, False, 3, "a b")
    await send_request(gateway, "POST", "/v1/table/t/describe?version=3", {"version": 4})
    assert keeper.requests[-1].version == 4
    query = "page_token=a%2Bb%3D&limit=7&include_declared=false&later=1"
    await send_request(gateway, "GET", f"/v1/namespace/n/table/list?{query}")
    request = keeper.requests[-1]
    assert (request.page_token, request.limit, request.include_declared) == ("a+b=", 7, False)


async def test_rows_come_as_the_body_and_the_rest_by_query(gateway: Gateway, keeper: Keeper) -> None:
    query = "mode=Overwrite&properties=%7B%22a%22%3A%22b%22%7D&storage_options=%7B%22s%22%3A%22o%22%7D"
    assert (await send_request(gateway, "POST", f"/v1/table/n%24t/create?{query}", b"\x00rows\xff")).status == 200
    request = keeper.requests[-1]
    assert (request.id, request.mode, request.properties) == (["n", "t"], "Overwrite", {"a": "b"})
    assert request.storage_options == {"s": "o"} and keeper.rows == b"\x00rows\xff"
    query = "on=id&on=k&when_matched_update_all=true&timeout=3s&use_index=false"
    assert (await send_request(gateway, "POST", f"/v1/table/t/merge_insert?{query}", b"")).status == 200
    it = keeper.requests[-1]
    assert (it.on, it.when_matched_update_all, it.timeout, it.use_index) == (["id", "k"], True, "3s", False)


async def test_what_is_wrong_is_reported_before_the_rows_are_read(keeper: Keeper) -> None:
    async with serving(keeper, idle=0.1) as gateway:
        target = "/v1/table/t/create?properties=%7B"
        assert (await send_request(gateway, "POST", target, headers={"Content-Length": "1000000000"})).status == 400


async def test_metadata_is_the_whole_body_and_a_body_may_come_in_chunks(gateway: Gateway, keeper: Keeper) -> None:
    metadata = {"id": "x", "context": "y"}
    response = await send_request(gateway, "POST", "/v1/table/t/schema_metadata/update?branch=b", metadata)
    assert response.json == metadata and keeper.requests[-1].id == ["t"]
    host, token = gateway.url.removeprefix("http://"), f"x-lance-token: {gateway.token}"
    head = f"POST /v1/table/t/describe HTTP/1.1\r\nHost: {host}\r\n{token}\r\nTransfer-Encoding: chunked"
    body = b'8\r\n{"versio\r\n5\r\nn":6}\r\n0\r\n\r\n'
    assert (await send_bytes(gateway, f"{head}\r\nConnection: close\r\n\r\n".encode() + body)).status == 200
    assert keeper.requests[-1].version == 6


async def test_fields_that_the_spec_does_not_have_are_refused(gateway: Gateway, keeper: Keeper) -> None:
    body = {"id": ["t"], "version": 1, "tag": None, "of_a_newer_client": None}
    assert (await send_request(gateway, "POST", "/v1/table/t/describe?more=1", body)).status == 200
    answer = await send_request(gateway, "POST", "/v1/table/t/describe", {**body, "versions": 2})
    assert answer.status == 400 and "versions: unknown, did you mean version" in answer.json["error"]


async def test_what_is_for_the_gateway_goes_no_further(gateway: Gateway, keeper: Keeper) -> None:
    body = {
        "identity": {"auth_token": "secret", "api_key": "key"},
        "context": {"header.x-lance-token": "secret", "headers.authorization": "secret", "tenant": "blue"},
    }
    assert (await send_request(gateway, "POST", "/v1/table/t/describe", body)).status == 200
    assert keeper.requests[-1].identity is None and keeper.requests[-1].context == {"tenant": "blue"}


@pytest.mark.parametrize(
    ("target", "body", "message"),
    [
        *(("/v1/table/t/describe", it, "not valid JSON") for it in (b"{bad", b"\xff\xfe", b"[" * 20_000)),
        *(("/v1/table/t/describe", it, "must be a JSON object") for it in (["a list"], "text")),
        ("/v1/table/t/describe", {"version": "1"}, "version"),
        *(("/v1/table/t/describe", {"id": "t"}, "id"), ("/v1/table/t/describe", {"id": [1]}, "id")),
        *(("/v1/table/t/describe", it, "context") for it in ({"context": {"a": 1}}, {"context": "all"})),
        ("/v1/table/t/describe?version=one", None, "version"),
        pytest.param("/v1/table/t/describe?version=" + "9" * 5000, None, "version", id="a long version"),
        ("/v1/table/t/describe?check_declared=yes", None, "check_declared"),
        *(("/v1/table/t/describe?tag=%FF", None, "query"), ("/v1/table/%FF/describe", None, "path")),
        ("/v1/table/a%00b/describe", None, "path"),
        ("/v1/table/t/describe?delimiter=", None, "delimiter"),
        ("/v1/table/t/create?properties=%7B", None, "properties"),
        ("/v1/table/t/create?properties=%7B%22a%22%3A1%7D", None, "properties"),
        ("/v1/table/t/schema_metadata/update", {"a": 1}, "metadata"),
    ],
)
async def test_malformed_requests_are_refused(
    gateway: Gateway, keeper: Keeper, target: str, body: object, message: str
) -> None:
    response = await send_request(gateway, "POST", target, body)
    assert (response.status, response.code) == (400, 13) and message in response.json["error"]
    assert keeper.requests == []


def routes_of_client() -> Iterator[tuple[str, str, str]]:
    """Yields the operation, the method and the path of each call of the spec's client."""
    for cls in vars(api).values():
        if not inspect.isclass(cls):
            continue
        for name, method in vars(cls).items():
            if match := re.fullmatch(r"_(\w+)_serialize", name):
                source = inspect.getsource(method)
                (verb,) = re.findall(r"method='(\w+)'", source)
                (path,) = re.findall(r"resource_path='([^']+)'", source)
                yield match[1], verb.lower(), path


def references(value: Any) -> Iterator[str]:
    match value:
        case dict():
            if isinstance(target := value.get("$ref"), str):
                yield target.rpartition("/")[2]
            for part in value.values():
                yield from references(part)
        case list():
            for part in value:
                yield from references(part)


def test_the_document_has_the_routes_of_the_spec() -> None:
    document = openapi.document(route.operation for route in ROUTES)
    own = {
        (operation["operationId"], method, path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert own == {*routes_of_client(), (("create_empty_table", "post", "/v1/table/{id}/create-empty"))}


def test_the_document_is_complete() -> None:
    document = openapi.document(BY_OPERATION)
    assert len(document["paths"]) == len(BY_OPERATION)
    assert set(references(document)) <= document["components"]["schemas"].keys()
    described = document["paths"]["/v1/table/{id}/describe"]["post"]
    assert described["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/DescribeTableResponse"
    }
    assert document["components"]["schemas"]["DescribeTableRequest"]["additionalProperties"] is False
    names = [it["name"] for it in document["paths"]["/v1/table/{id}/insert"]["post"]["parameters"]]
    assert names[:2] == ["id", "delimiter"] and "mode" in names


async def test_a_gateway_serves_the_document_of_its_operations(tmp_path: Path) -> None:
    class Small:
        async def describe_table(self, request: object) -> object: ...

    async with serving(Small()) as gateway:
        assert (await send_request(gateway, "GET", "/openapi.json", token=False)).status == 401
        document = (await send_request(gateway, "GET", "/openapi.json")).json
        assert list(document["paths"]) == ["/v1/table/{id}/describe"] and document["openapi"] == "3.1.0"
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns) as gateway:
        document = (await send_request(gateway, "GET", "/openapi.json")).json
        assert len(document["paths"]) == len(BY_OPERATION)
