"""The OpenAPI document of a gateway, compared with the spec's own client."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lance_namespace_urllib3_client import api

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import openapi, serving
from lance_ns_async.spec.routes import BY_OPERATION, ROUTES
from tests.support.gateway import ask


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
    former = ("create_empty_table", "post", "/v1/table/{id}/create-empty")
    assert own == {*routes_of_client(), former}


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
        assert (await ask(gateway, "GET", "/openapi.json", token=False)).status == 401
        document = (await ask(gateway, "GET", "/openapi.json")).json
        assert list(document["paths"]) == ["/v1/table/{id}/describe"] and document["openapi"] == "3.1.0"
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns) as gateway:
        document = (await ask(gateway, "GET", "/openapi.json")).json
        assert len(document["paths"]) == len(BY_OPERATION)
