"""Requests of Spark's Lance connector in a session, and the gateway's responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance_namespace as spec

from lance_ns_async.gateway import serving
from tests.support.gateway import ask
from tests.support.lake import lake

CONNECTOR: list[tuple[str, str, Any, int, Any]] = [
    ("GET", "/v1/namespace/%24/list?delimiter=%24", None, 200, {"namespaces": ["default"]}),
    (
        "POST",
        "/v1/namespace/db/create?delimiter=%24",
        {"context": {}, "id": ["db"], "properties": {"owner": "me"}},
        200,
        {"properties": {"owner": "me"}},
    ),
    (
        "POST",
        "/v1/namespace/db/create?delimiter=%24",
        {"context": {}, "id": ["db"], "properties": {"owner": "me"}},
        409,
        2,
    ),
    ("POST", "/v1/namespace/db/exists?delimiter=%24", {"context": {}, "id": ["db"]}, 200, {}),
    ("POST", "/v1/namespace/no/exists?delimiter=%24", {"context": {}, "id": ["no"]}, 404, 1),
    (
        "POST",
        "/v1/namespace/db/describe?delimiter=%24",
        {"context": {}, "id": ["db"]},
        200,
        {"properties": {"owner": "me"}},
    ),
    ("POST", "/v1/namespace/no/describe?delimiter=%24", {"context": {}, "id": ["no"]}, 404, 1),
    ("POST", "/v1/table/db%24t1/exists?delimiter=%24", {"context": {}, "id": ["db", "t1"]}, 404, 4),
    (
        "POST",
        "/v1/table/db%24t1/declare?delimiter=%24",
        {"context": {}, "id": ["db", "t1"], "properties": {}},
        200,
        {"location": "~", "properties": {}, "managed_versioning": False},
    ),
    ("POST", "/v1/table/db%24t1/declare?delimiter=%24", {"context": {}, "id": ["db", "t1"], "properties": {}}, 409, 5),
    ("POST", "/v1/table/db%24t1/exists?delimiter=%24", {"context": {}, "id": ["db", "t1"]}, 200, {}),
    (
        "POST",
        "/v1/table/db%24a+b/declare?delimiter=%24",
        {"context": {}, "id": ["db", "a b"], "properties": {}},
        200,
        {"location": "~", "properties": {}, "managed_versioning": False},
    ),
    ("GET", "/v1/namespace/db/table/list?delimiter=%24", None, 200, {"tables": ["a b", "t1"]}),
    (
        "POST",
        "/v1/table/db%24t1/describe?delimiter=%24&with_table_uri=false",
        {"context": {}, "id": ["db", "t1"], "with_table_uri": False},
        200,
        {"location": "~", "properties": {}, "managed_versioning": False},
    ),
    (
        "POST",
        "/v1/table/db%24no/describe?delimiter=%24&with_table_uri=false",
        {"context": {}, "id": ["db", "no"], "with_table_uri": False},
        404,
        4,
    ),
    (
        "POST",
        "/v1/table/db%24t1/describe?delimiter=%24&with_table_uri=false",
        {"context": {}, "id": ["db", "t1"], "with_table_uri": False, "version": 1},
        404,
        11,
    ),
    ("POST", "/v1/namespace/db/drop?delimiter=%24", {"context": {}, "id": ["db"], "behavior": "Restrict"}, 409, 3),
    (
        "POST",
        "/v1/table/db%24t1/deregister?delimiter=%24",
        {"context": {}, "id": ["db", "t1"]},
        200,
        {"id": ["db", "t1"], "location": "~", "properties": {}},
    ),
    ("POST", "/v1/table/db%24t1/deregister?delimiter=%24", {"context": {}, "id": ["db", "t1"]}, 404, 4),
    (
        "POST",
        "/v1/table/db%24a+b/drop?delimiter=%24",
        {"context": {}, "id": ["db", "a b"]},
        200,
        {"id": ["db", "a b"], "location": "~", "properties": {}},
    ),
    ("POST", "/v1/table/db%24a+b/drop?delimiter=%24", {"context": {}, "id": ["db", "a b"]}, 404, 4),
    ("POST", "/v1/namespace/db/drop?delimiter=%24", {"context": {}, "id": ["db"], "behavior": "Restrict"}, 200, {}),
    ("POST", "/v1/transaction/db%24t1/describe?delimiter=%24", {"context": {}, "id": ["db", "t1"]}, 406, 0),
]
"""The requests of the JVM connector in a session, in order, with the responses or error codes."""


async def test_the_connectors_requests_are_answered_as_it_expects(tmp_path: Path) -> None:
    async with lake(tmp_path) as it, serving(it.ns) as gateway:
        await it.ns.drop_namespace(spec.DropNamespaceRequest(id=["n"]))
        await it.ns.create_namespace(spec.CreateNamespaceRequest(id=["default"]))
        for method, target, body, status, expected in CONNECTOR:
            response = await ask(gateway, method, target, body, {"Content-Type": "application/json"})
            assert response.status == status, (target, response.body)
            if status != 200:
                assert response.code == expected and isinstance(response.json["error"], str), target
                continue
            document = response.json
            if "location" in document:
                document["location"] = "~"
            assert document == expected, target
