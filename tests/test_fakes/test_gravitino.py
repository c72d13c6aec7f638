"""Requests to the Lance REST server of Apache Gravitino 1.3.0, and its responses, which the fake repeats. A code of an
error is that of the protocol; HTML and text come from its web framework. Names of 65 to 99 characters were not sent to
the real server; the fake refuses them by the pattern in Gravitino's source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.http import ask, check
from tests.fakes.rest import FakeGravitino

JSON = {"Content-Type": "application/json"}
S, T, NEW = "/v1/namespace/c$s", "/v1/table/c$s$t", "/v1/table/c$s$new"
NO_PATH = "<html><head><title>Error 404</title></head></html>"
NO_METHOD = NO_PATH.replace("404", "405")
PLACE = {"location": "s3://b/t"}


@pytest.fixture
def server() -> Iterator[FakeGravitino]:
    """Provides a server with the table `c$s$t`, and two more in another schema."""
    with FakeGravitino() as running:
        for id in (("c", "s", "t"), ("c", "s2", "t1"), ("c", "s2", "t2")):
            running.add_table(*id)
        running.namespaces |= {("c", "empty"): {}, ("used",): {"in-use": "true"}}
        yield running


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "expected"),
    [
        # Tables.
        ("POST", f"{T}/describe", {}, 200, {"managed_versioning": False, "metadata": {}, "namespace": []}),
        *(("POST", it, {}, 404, 4) for it in ("/v1/table/c$s$zz/describe", "/v1/table/c$zz$t/describe")),
        ("POST", "/v1/table/zz$s$t/describe", {}, 404, 1),
        ("POST", f"{T}/exists", {}, 200, None),
        ("POST", "/v1/table/c$s$zz/exists", {}, 404, 4),
        ("POST", "/v1/table/zz$s$t/exists", {}, 404, 1),
        ("POST", f"{NEW}/declare", {}, 200, {"location": "s3://lake/c/s/new/", "managed_versioning": False}),
        ("POST", f"{NEW}/declare", {"location": None}, 200, {"location": "s3://lake/c/s/new/"}),
        ("POST", f"{NEW}/declare", {"properties": {"a": None}}, 500, 18),
        ("POST", f"{T}/declare", {}, 409, 5),
        ("POST", f"{NEW}/register", PLACE, 200, {"location": "s3://b/t/"}),
        ("POST", f"{NEW}/register", {**PLACE, "id": ["c", "s", "other"]}, 200, {"location": "s3://b/t/"}),
        ("POST", f"{T}/register", PLACE, 409, 5),
        *(("POST", f"{T}/register", {**PLACE, "mode": m}, 200, ...) for m in ("Overwrite", "overwrite", "OVERWRITE")),
        ("POST", f"{T}/register", {**PLACE, "mode": "bad"}, 400, 13),
        *(("POST", it, {}, 400, 13) for it in (f"{T}/alter_columns", f"{T}/drop_columns")),
        *(
            ("POST", f"{T}/{operation}", {}, 404, NO_PATH)
            for operation in ("version/list", "stats", "update", "query", "index/list", "tags/list", "rename")
        ),
        *(("POST", f"{T}/{operation}", {}, 404, NO_PATH) for operation in ("create-empty", "count_rows")),
        ("POST", f"{S}/table/batch-describe", {}, 404, NO_PATH),
        ("GET", "/v1/table", None, 404, NO_PATH),
        # Namespaces.
        ("POST", f"{S}/describe", {}, 200, {"properties": {}}),
        *(("POST", it, {}, 400, 13) for it in ("/v1/namespace/$/describe", "/v1/namespace/$/exists")),
        ("POST", "/v1/namespace/c$zz/describe", {}, 404, 1),
        ("POST", "/v1/namespace/c$new/create", {"properties": {"a": None}}, 500, 18),
        ("POST", f"{S}/create", {}, 409, 2),
        ("POST", f"{S}/create", {"mode": "exist_ok"}, 200, ...),
        *(("POST", f"{S}/create", {"mode": mode}, 400, 13) for mode in ("ExistOk", "")),
        ("POST", f"{S}/drop", {}, 400, 13),
        ("POST", "/v1/namespace/new/create", {}, 200, {"properties": {"in-use": "true"}}),
        ("POST", f"{S}/drop", {"behavior": "Cascade"}, 200, {}),
        ("POST", "/v1/namespace/c$zz/drop", {}, 404, 1),
        *(
            ("POST", "/v1/namespace/c$zz/drop", {"mode": mode}, 200, {"properties": {}, "transaction_id": []})
            for mode in ("Skip", "SKIP", "skip")
        ),
        # Lists; the response has no token if there is no further page.
        ("GET", "/v1/namespace/$/list", None, 200, {"namespaces": ["c", "used"], "page_token": "missing"}),
        ("GET", "/v1/namespace/c/list", None, 200, {"namespaces": ["empty", "s", "s2"]}),
        *(("GET", f"/v1/namespace/{id}/list", None, 200, {"namespaces": []}) for id in ("c$s", "c$zz", "zz$zz")),
        ("GET", "/v1/namespace/zz/list", None, 404, 1),
        ("GET", f"{S}2/table/list?limit=1", None, 200, {"tables": ["c$s2$t1"], "page_token": "1"}),
        ("GET", f"{S}2/table/list?limit=1&page_token=1", None, 200, {"tables": ["c$s2$t2"], "page_token": "missing"}),
        *(("GET", it, None, 400, 13) for it in ("/v1/namespace/c/table/list", f"{S}/table/list?limit=0")),
        ("GET", f"{S}/table/list?limit=-1", None, 400, 13),
        ("GET", f"{S}/table/list?limit=x", None, 404, NO_PATH),
        ("GET", f"{S}/table/list?page_token=zz", None, 400, 13),
        # Methods and bodies.
        ("GET", f"{T}/describe", None, 405, NO_METHOD),
        ("POST", f"{S}/list", {}, 405, NO_METHOD),
        ("POST", f"{T}/declare", "", 500, 18),
        ("POST", f"{T}/declare", "{", 400, ...),
        ("POST", f"{T}/declare", [], 400, ...),
        ("POST", f"{T}/declare", {"unknown": 1}, 400, ...),
        # Names.
        *(("POST", f"/v1/table/c$s${name}/declare", {}, 200, ...) for name in ("a%2Fb", "A", "a-b=c", "x" * 64)),
        *(("POST", f"/v1/table/c$s${name}/declare", {}, 400, 13) for name in ("-a", "x" * 100, "a%20b", "a.b", "a%25")),
        ("POST", "/v1/namespace/c$%C3%A9/create", {}, 400, 13),
    ],
)
def test_requests(server: FakeGravitino, method: str, path: str, body: Any, status: int, expected: Any) -> None:
    check(ask(server, method, path, body, JSON if method == "POST" else {}), status, expected)


def test_content_types(server: FakeGravitino) -> None:
    """What the web framework cannot read is no error of the protocol."""
    assert ask(server, "POST", f"{T}/declare", "{}", {"Content-Type": "text/plain"}).status == 415
    for body in ("{", "[]", '{"unknown": 1}'):
        assert ask(server, "POST", f"{NEW}/declare", body, JSON).headers["Content-Type"] == "text/plain"


def test_errors_contain_a_stack_trace(server: FakeGravitino) -> None:
    for path, message in (
        ("/v1/table/c$s$-a/declare", "The TABLE name '-a' is illegal. Illegal name: -a"),
        ("/v1/namespace/$/exists", "Expected at most 2-level and at least 1-level namespace but got: $"),
        ("/v1/namespace/c$zz/describe", "Failed to operate schema(s) [zz] operation [LOAD] under catalog [c], reason"),
        (f"{S}/drop", "Schema s is not empty."),
        ("/v1/namespace/used/drop", "Catalog used is in use"),
    ):
        error = ask(server, "POST", path, {}, JSON).json
        assert error["error"].startswith(message) and "\n\tat org.apache" in error["detail"]
        assert error["instance"] == path


def test_tables_have_properties_of_the_server(server: FakeGravitino) -> None:
    for operation, mode, kind in (("declare", "CREATE", "lance.declared"), ("register", "OVERWRITE", "lance.register")):
        fields = {"mode": "overwrite"} if operation == "register" else {}
        body = json.dumps({**PLACE, **fields, "properties": {"a": "b"}})
        properties = ask(server, "POST", f"{NEW}/{operation}", body, JSON).json["properties"]
        own = {"external": "true", "format": "lance", "location": "s3://b/t/", "lance.creation-mode": mode}
        assert properties == {"a": "b", **own, kind: "true"}
