"""Requests to Lakekeeper 0.13.3, and its responses, which the fake repeats; `P` is the prefix of the warehouse.
Remaining differences: some messages of errors; the endpoints in the configuration are those of the fake."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.fakes.http import Reply, ask, check
from tests.fakes.lakekeeper import FakeLakekeeper

JSON = {"Content-Type": "application/json"}
NS, GT = "/catalog/v1/P/namespaces", "/lakekeeper/v1/P/namespaces/a/generic-tables"
R = "/lakekeeper/v1/P/generic-tables/rename"
M = "/management/v1/warehouse/P/"
UNDROP = f"{M}deleted-tabulars/undrop"
CONFIG = "/catalog/v1/config"
BASE = "s3://bucket/lake"
NO_TABLE, NO_SPACE, NOT_EMPTY = "NoSuchGenericTableException", "NoSuchNamespaceException", "NamespaceNotEmptyException"
EXISTS, PLACE, TABLE_PLACE = "AlreadyExistsException", "InvalidLocation", "InvalidTableLocation"
BACKEND, NO_WAREHOUSE = "CatalogBackendError", "NoSuchWarehouseException"
KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "hush", "s3.session-token": "token"}


def planted(*, soft: bool = False) -> FakeLakekeeper:
    """Returns a server with the tables `t1` and `t2`, an Iceberg table, and a namespace whose table was deleted."""
    server = FakeLakekeeper(soft=soft)
    for levels, name in ((["a"], "t1"), (["a"], "t2"), (["a", "b"], "t"), (["gone"], "t")):
        server.add_table(levels, name)
    server.add_table(["a"], "taken", location=f"{BASE}/x/taken")
    server.add_iceberg_table(["a"], "ice")
    server.add_namespace(["empty"], {"location": f"{BASE}/empty/"})
    return server


def send(server: FakeLakekeeper, method: str, path: str, body: Any = None, headers: Any = None) -> Reply:
    """Sends a request, with the prefix for `P`."""
    prefix = ask(server, "GET", f"{CONFIG}?warehouse=lake").json["defaults"]["prefix"]
    return ask(server, method, path.replace("/P/", f"/{prefix}/"), body, JSON if headers is None else headers)


@pytest.fixture
def server() -> Iterator[FakeLakekeeper]:
    with planted() as running:
        yield running


@pytest.fixture
def soft() -> Iterator[FakeLakekeeper]:
    """Provides a server with soft deletion, on which the table of the namespace `gone` was deleted."""
    with planted(soft=True) as running:
        send(running, "DELETE", GT.replace("/a/", "/gone/") + "/t")
        yield running


def new(name: Any = "n", **changes: Any) -> dict[str, Any]:
    """Returns the body that creates a table, with some fields changed, and without those that are `...`."""
    body = {"name": name, "format": "lance", **changes}
    return {key.replace("base_", "base-"): value for key, value in body.items() if value is not ...}


def space(*levels: Any, **properties: Any) -> dict[str, Any]:
    return {"namespace": levels, "properties": properties}


def rename(source: str, destination: str) -> dict[str, Any]:
    """Returns the body that renames a table; names are a namespace and a table."""
    ends = [end.split("/") for end in (source, destination)]
    return dict(zip(("source", "destination"), ({"namespace": [ns], "name": n} for ns, n in ends), strict=True))


REQUESTS: list[tuple[str, str, Any, int, Any]] = [
    # Renaming.
    *(("POST", R, it, 204, None) for it in (rename("a/t1", "a/new"), rename("a/t1", "a/T1"))),
    *(("POST", R, rename("a/t1", f"a/{name}"), 404, NO_TABLE) for name in ("t2", "T2", "ice")),
    *(("POST", R, it, 404, NO_TABLE) for it in (rename("a/t2", "A/T2"), rename("a/zz", "a/new"))),
    ("POST", R, rename("zz/t1", "a/new"), 404, NO_SPACE),
    ("POST", R, rename("a/t1", "a/"), 400, "IdentifierNameEmpty"),
    ("POST", R, {**rename("a/t1", "a/n"), "source": {"namespace": [], "name": "t1"}}, 400, "InvalidSourceIdent"),
    ("POST", R, {}, 422, ...),
    # Namespaces.
    ("POST", NS, space("n"), 200, {"namespace": ["n"]}),
    ("POST", NS, space("A"), 409, EXISTS),
    ("POST", NS, space("zz", "n"), 404, NO_SPACE),
    ("POST", NS, space(*"abcdef"), 400, "NamespaceDepthExceeded"),
    ("POST", NS, space(), 500, "Service panicked"),
    ("POST", NS, space("a.b"), 400, "NamespacePartContainsDot"),
    ("POST", NS, space("a+b"), 400, "InvalidNamespace"),
    *(("POST", NS, it, 503, BACKEND) for it in (space("a\0b"), space("n", k="\0"))),
    *(("POST", NS, it, 400, PLACE) for it in (space("n", location=BASE), space("n", location="s3://other/x"))),
    ("POST", NS, space("n", location="nonsense"), 400, "ConfigLocationParseError"),
    *(("POST", NS, it, 422, ...) for it in ({"namespace": "n"}, {})),
    ("GET", f"{NS}/zz", None, 404, NO_SPACE),
    ("GET", f"{NS}/A", None, 200, {"namespace": ["A"]}),
    ("GET", f"{NS}/a.b", None, 400, "NamespacePartContainsDot"),
    ("GET", f"{NS}/", None, 404, None),
    ("HEAD", f"{NS}/a", None, 204, None),
    ("DELETE", f"{NS}/empty", None, 204, None),
    ("DELETE", f"{NS}/a", None, 409, NOT_EMPTY),
    ("DELETE", f"{NS}/a?recursive=true", None, 204, None),
    ("POST", f"{NS}/a/properties", {"updates": {"x": "1"}}, 200, {"updated": ["x"], "removed": [], "missing": []}),
    ("PUT", f"{NS}/a", {}, 405, None),
    ("PATCH", NS, {}, 405, None),
    # Creating tables.
    *(("POST", GT, it, 409, "GenericTableAlreadyExists") for it in (new("t1"), new("ICE"))),
    ("POST", GT.replace("/a/", "/zz/"), new(), 404, NO_SPACE),
    *(("POST", GT, it, 400, "InvalidName") for it in (new(""), new("a+b"))),
    ("POST", GT, new("a\0b"), 503, BACKEND),
    ("POST", GT, new(format="Lance"), 400, "InvalidFormat"),
    *(("POST", GT, it, 422, ...) for it in (new(format=""), new(format=...), new(1))),
    *(("POST", GT, new(properties=properties), 422, ...) for properties in (None, {"k": None}, {"k": 1})),
    *(("POST", GT, new(base_location=place), 400, TABLE_PLACE) for place in ("", "x", "/abs", "file:///x")),
    *(("POST", GT, new(base_location=f"{BASE}/{end}"), 400, TABLE_PLACE) for end in ("../x", "a//b", "a?b", "a#b")),
    *(("POST", GT, it, 400, PLACE) for it in (new(base_location=BASE), new(base_location="s3://other/x"))),
    *(("POST", GT, new(base_location=f"{BASE}/{end}"), 409, "LocationAlreadyTaken") for end in ("x/taken/y", "x/")),
    ("POST", GT, "{nonsense", 400, ...),
    ("POST", GT, new(doc="x" * 2**21), 413, ...),
    # Other requests for tables.
    ("GET", f"{GT}/t1", None, 200, ...),
    ("HEAD", f"{GT}/t1", None, 200, None),
    ("GET", f"{GT}/zz", None, 404, NO_TABLE),
    *(("GET", it, None, 404, NO_SPACE) for it in (GT.replace("/a/", "/zz/") + "/t1", GT.replace("/a/", "/zz/"))),
    ("DELETE", f"{GT}/T1", None, 204, None),
    ("DELETE", f"{GT}/zz", None, 404, NO_TABLE),
    ("DELETE", f"{GT}/t1?purgeRequested=nonsense", None, 400, ...),
    ("PUT", f"{GT}/t1", {}, 405, None),
    ("GET", R, None, 405, None),
    # Lists.
    ("GET", f"{NS}?parent=A", None, 200, {"namespaces": [["a", "b"]], "next-page-token": "missing"}),
    ("GET", f"{NS}?parent=a.b", None, 400, "NamespacePartContainsDot"),
    ("GET", f"{NS}?parent=", None, 400, "NamespacePartEmpty"),
    ("GET", NS, None, 200, {"namespaces": [["a"], ["gone"], ["empty"]], "next-page-token": "missing"}),
    *(("GET", f"{NS}?pageSize={n}", None, 200, {"namespaces": [["a"]], "next-page-token": "1"}) for n in (1, 0, -1)),
    ("GET", f"{NS}?pageSize=abc", None, 400, ...),
    ("GET", f"{NS}?pageToken=garbage", None, 400, "InvalidPaginationToken"),
    ("GET", GT, None, 200, {"next-page-token": "3"}),
    ("GET", f"{GT}?pageToken=3", None, 200, {"identifiers": [], "next-page-token": "missing"}),
    *(("GET", f"{GT}?pageToken={token}", None, 503, BACKEND) for token in ("garbage", "")),
    # Configuration.
    ("GET", f"{CONFIG}?warehouse={UUID(int=0)}/lake", None, 200, ...),
    ("GET", f"{CONFIG}?warehouse={UUID(int=1)}/lake", None, 404, NO_WAREHOUSE),
    ("GET", f"{CONFIG}?warehouse=p/lake", None, 404, NO_WAREHOUSE),
    ("GET", CONFIG, None, 400, "GetConfigNoWarehouseProvided"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "expected"), REQUESTS)
def test_requests(server: FakeLakekeeper, method: str, path: str, body: Any, status: int, expected: Any) -> None:
    check(send(server, method, path, body), status, expected)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "expected"),
    [
        ("POST", R, rename("a/t1", "gone/T"), 404, NO_TABLE),
        ("DELETE", f"{NS}/gone", None, 409, NOT_EMPTY),
        ("DELETE", f"{NS}/a?recursive=true", None, 400, "NamespaceDeleteNotAllowed"),
        ("DELETE", f"{NS}/a?recursive=true&force=true", None, 204, None),
        ("GET", f"{M}deleted-tabulars?pageToken=1", None, 200, {"tabulars": [], "next-page-token": "missing"}),
        ("POST", UNDROP, {"targets": []}, 204, None),
        ("POST", UNDROP, {"targets": [{"id": str(UUID(int=1)), "type": "generic-table"}]}, 404, NO_TABLE),
        ("POST", UNDROP, {"targets": [{"id": str(UUID(int=1)), "type": "nonsense"}]}, 422, ...),
        ("GET", UNDROP, None, 405, None),
    ],
)
def test_soft_deletion(soft: FakeLakekeeper, method: str, path: str, body: Any, status: int, expected: Any) -> None:
    check(send(soft, method, path, body), status, expected)


def test_undrop(soft: FakeLakekeeper) -> None:
    """A table comes back under its name, if no other one has it; then, nothing is changed."""
    (deleted,) = send(soft, "GET", f"{M}deleted-tabulars").json["tabulars"]
    assert (deleted["namespace"], deleted["name"], deleted["typ"]) == (["gone"], "t", "generic-table")
    body = {"targets": [{"id": deleted["id"], "type": "generic-table"}]}
    send(soft, "POST", gone := GT.replace("/a/", "/gone/"), new("T"))
    check(send(soft, "POST", UNDROP, body), 409, EXISTS)
    send(soft, "DELETE", f"{gone}/T?force=true")
    assert [send(soft, "POST", UNDROP, body).status for _ in range(2)] == [204, 204]
    assert send(soft, "GET", f"{gone}/t").status == 200


def test_content_types(server: FakeLakekeeper) -> None:
    """What the web framework cannot read is answered in text, without an error object."""
    assert send(server, "POST", GT, "{}", {"Content-Type": "text/plain"}).status == 415
    for body in ("{nonsense", "{}", "[]"):
        assert send(server, "POST", GT, body).headers["Content-Type"] == "text/plain; charset=utf-8"


def test_properties_of_namespaces(server: FakeLakekeeper) -> None:
    """The server adds an id, and the location of the warehouse, which has no slash at its end."""
    for sent, location in (({}, BASE), ({"location": f"{BASE}/n", "namespace_id": "x"}, f"{BASE}/n/")):
        name = f"n{len(sent)}"
        properties = send(server, "POST", NS, space(name, **sent)).json["properties"]
        assert properties["location"] == location and len(properties["namespace_id"]) == 36
        assert send(server, "GET", f"{NS}/{name}").json["properties"] == properties


def test_tables_are_stored_as_sent(server: FakeLakekeeper) -> None:
    body = new("Tü", base_location=f"{BASE}/a b%20c/", statistics={}, properties={"k": "v"})
    stored = {**body, "base-location": f"{BASE}/a b%20c", "protected": False}
    for reply in (send(server, "POST", GT, body), send(server, "GET", f"{GT}/t%C3%9C")):
        assert reply.json["table"] == stored


@pytest.mark.parametrize("name", ["é/e\u0301", "x²/x2", "\uff41/a", "①/1", "㎏/kg", "ⅳ/iv", "a\u200dz/az", "A/a"])
def test_names_that_are_equal(server: FakeLakekeeper, name: str) -> None:
    one, other = name.split("/")
    assert [send(server, "POST", GT, new(name)).status for name in (one, other)] == [200, 409]


@pytest.mark.parametrize("name", ["straße/strasse", "\u017fet/set"])
def test_names_that_differ(server: FakeLakekeeper, name: str) -> None:
    assert [send(server, "POST", GT, new(name)).status for name in name.split("/")] == [200, 200]


@pytest.mark.parametrize(
    ("vends", "header", "keys"),
    [
        *(([{"prefix": BASE, "config": KEYS}], it, KEYS) for it in (None, "nonsense")),
        ([{"prefix": BASE, "config": KEYS}], "client-managed", None),
        (None, "vended-credentials", {"s3.region": "us-east-1", "s3.endpoint": "http://127.0.0.1:9000/"}),
    ],
)
def test_credentials(vends: Any, header: str | None, keys: dict[str, str] | None) -> None:
    """Only `client-managed` turns them off; a storage without STS has its region and endpoint in their place."""
    with FakeLakekeeper(vends=vends) as server:
        server.add_table(["a"], "t1")
        headers = {} if header is None else {"X-Iceberg-Access-Delegation": header}
        reply = send(server, "GET", f"{GT}/t1", headers=headers).json
        assert reply["config"] == (keys or {})
        assert [it["config"] for it in reply["storage-credentials"]] == ([keys] if keys else [])


def test_repeated_changes_get_the_first_answer(server: FakeLakekeeper) -> None:
    key = {**JSON, "Idempotency-Key": str(uuid4())}
    for method, path, body, status in (("POST", NS, space("n"), 200), ("DELETE", f"{GT}/t1", None, 204)):
        assert [send(server, method, path, body, key).status for _ in range(2)] == [status, status]
    check(send(server, "POST", NS, space("n"), {**JSON, "Idempotency-Key": "x"}), 400, "InvalidIdempotencyKey")


@pytest.mark.parametrize(("is_soft", "ends"), [(False, [204, 404]), (True, [204, 204])])
def test_concurrent_deletions(is_soft: bool, ends: list[int]) -> None:
    with planted(soft=is_soft) as server, server.hold("DELETE") as hold, ThreadPoolExecutor(2) as pool:
        replies = [pool.submit(send, server, "DELETE", f"{GT}/t1") for _ in range(2)]
        hold.wait_for(2)
        hold.release()
        assert sorted(reply.result().status for reply in replies) == ends
