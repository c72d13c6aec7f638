"""The fake Iceberg REST catalog: configuration, paths, namespaces, pages and tokens like those of real servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import aiohttp
import httpx
import pytest
import yarl

from tests.fakes.iceberg import LANCE, FakeIceberg
from tests.fakes.iceberg.catalog import Quirks
from tests.fakes.iceberg.errors import error_in
from tests.fakes.iceberg.metadata import creation
from tests.fakes.raw import Reply, ask


def create(server: FakeIceberg, *levels: str, **properties: str) -> Reply:
    return ask(server, "POST", "/v1/namespaces", {"namespace": levels, "properties": properties})


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as running:
        yield running


@pytest.mark.parametrize(
    ("server", "defaults", "overrides"),
    [
        (FakeIceberg(), {}, {"namespace-separator": "%2E"}),
        (FakeIceberg(Quirks(separator=None), prefix="p"), {}, {"prefix": "p"}),
        (
            FakeIceberg.nessie(),
            {"prefix": "main%7Cwarehouse", "rest-page-size": "200"},
            {"nessie.is-nessie-catalog": "true"},
        ),
    ],
)
def test_the_configuration_says_what_was_set(
    server: FakeIceberg, defaults: dict[str, str], overrides: dict[str, str]
) -> None:
    with server, httpx.Client(trust_env=False) as client:
        config = client.get(f"{server.endpoint}/v1/config").json()
    assert (config["defaults"], config["overrides"]) == (defaults, overrides)


def test_the_warehouse_is_remembered_and_an_unknown_one_refused() -> None:
    with FakeIceberg(warehouse="main") as server:
        replies = [ask(server, "GET", f"/v1/config{query}") for query in ("", "?warehouse=main", "?warehouse=b")]
        assert [reply.status for reply in replies] == [200, 200, 500]
        assert server.warehouses == [None, "main", "b"]


def test_a_prefix_stands_in_paths_as_it_is() -> None:
    with FakeIceberg(base="/iceberg", prefix="main%7Cwarehouse") as server:
        assert ask(server, "GET", "/iceberg/v1/main%7Cwarehouse/namespaces").status == 200
        for path in ("/iceberg/v1/main%257Cwarehouse/namespaces", "/iceberg/v1/main|warehouse/namespaces"):
            assert ask(server, "GET", path).status == 400
        reply = ask(server, "GET", "/iceberg/v1/namespaces")
        assert error_in(reply) == (400, "BadRequestException", "No route for request: GET iceberg/v1/namespaces")


def test_only_the_advertised_separator_separates(server: FakeIceberg) -> None:
    create(server, "n1", "sub", a="b")
    reply = ask(server, "GET", "/v1/namespaces/n1%2Esub")
    properties = {"location": "file:///warehouse/n1/sub", "a": "b"}
    assert reply.json == {"namespace": ["n1", "sub"], "properties": properties}
    for wrong in ("n1.sub", "n1%2esub"):
        reply = ask(server, "GET", f"/v1/namespaces/{wrong}")
        assert (reply.status, reply.json["namespace"]) == (200, ["n1.sub"])
    for refused in ("n1%1Fsub", "n1%2Fsub", "n1%25sub", "n1//sub", "%2E", "n1%FF"):
        assert ask(server, "GET", f"/v1/namespaces/{refused}").status == 400


async def test_aiohttp_spoils_the_separator_unless_told_not_to(server: FakeIceberg) -> None:
    server.add_namespace(("n1", "sub"))
    url = f"{server.endpoint}/v1/namespaces/n1%2Esub"
    async with aiohttp.ClientSession() as session:
        for address in (url, yarl.URL(url, encoded=True)):
            async with session.get(address) as response:
                await response.read()
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(url)
    assert [request.path for request in server.requests] == [
        "/v1/namespaces/n1.sub",
        "/v1/namespaces/n1%2Esub",
        "/v1/namespaces/n1%2Esub",
    ]


def test_without_a_separator_the_unit_separator_is_meant() -> None:
    with FakeIceberg(Quirks(separator=None)) as server:
        create(server, "a.b", "c d")
        reply = ask(server, "GET", "/v1/namespaces/a.b%1Fc%20d")
        assert (reply.status, reply.json["namespace"]) == (200, ["a.b", "c d"])
        assert ask(server, "GET", "/v1/namespaces/a%2Eb%2Ec%20d").status == 404


def test_parents_are_named_in_every_way_but_twice_escaped(server: FakeIceberg) -> None:
    create(server, "n1", "sub", "deep")
    for parent in ("n1%2Esub", "n1.sub", "n1%1Fsub"):
        listed = ask(server, "GET", f"/v1/namespaces?parent={parent}").json
        assert listed == {"namespaces": [["n1", "sub", "deep"]], "next-page-token": None}
    for parent in ("n1%252Esub", "", "zz"):
        reply = ask(server, "GET", f"/v1/namespaces?parent={parent}")
        assert error_in(reply)[:2] == (404, "NoSuchNamespaceException")


def test_a_dot_in_a_level_is_lost(server: FakeIceberg) -> None:
    create(server, "dot.ted")
    assert ask(server, "GET", "/v1/namespaces").json["namespaces"] == [["dot"]]


def test_a_missing_parent_is_there_while_it_has_children(server: FakeIceberg) -> None:
    assert create(server, "gap", "kid").status == 200
    for path in ("gap", "gap%2Ekid"):
        assert ask(server, "HEAD", f"/v1/namespaces/{path}").status == 204
    assert error_in(create(server, "gap")) == (409, "AlreadyExistsException", "Namespace already exists: gap")
    reply = ask(server, "DELETE", "/v1/namespaces/gap")
    message = "Namespace gap is not empty. Contains 1 child namespace(s)."
    assert error_in(reply) == (409, "NamespaceNotEmptyException", message)
    assert ask(server, "DELETE", "/v1/namespaces/gap%2Ekid").status == 204
    assert ask(server, "HEAD", "/v1/namespaces/gap").status == 404


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_missing_namespace_is_404_with_a_stack(server: FakeIceberg, method: str) -> None:
    reply = ask(server, method, "/v1/namespaces/zz%2Eyy")
    assert error_in(reply) == (404, "NoSuchNamespaceException", "Namespace does not exist: zz.yy")
    assert len(reply.json["error"]["stack"]) == 35


def test_heads_have_no_body(server: FakeIceberg) -> None:
    server.add_table(("n1",), "t")
    for path, status in (("n1", 204), ("zz", 404), ("n1/tables/t", 204), ("n1/tables/zz", 404)):
        reply = ask(server, "HEAD", f"/v1/namespaces/{path}")
        assert (reply.status, reply.body) == (status, b"")


def test_properties_of_a_namespace_change(server: FakeIceberg) -> None:
    create(server, "n1", a="b")
    path = "/v1/namespaces/n1/properties"
    change = {"updates": {"x": "1"}, "removals": ["a", "nope"]}
    assert ask(server, "POST", path, change).json == {"removed": ["a"], "updated": ["x"], "missing": ["nope"]}
    assert ask(server, "GET", "/v1/namespaces/n1").json["properties"].keys() == {"location", "x"}
    both = {"updates": {"x": "1"}, "removals": ["x"]}
    assert error_in(ask(server, "POST", path, both))[:2] == (422, "UnprocessableEntityException")


@pytest.mark.parametrize(
    ("headers", "content_type"),
    [({}, "text/html;charset=iso-8859-1"), ({"Accept": "application/json"}, "application/json")],
)
def test_jetty_refuses_in_its_own_form(server: FakeIceberg, headers: dict[str, str], content_type: str) -> None:
    for method, path, status in (("GET", "/v1/namespaces/a%2Fb", 400), ("POST", "/v1/namespaces", 500)):
        reply = ask(server, method, path, "{nonsense", headers)
        assert (reply.status, reply.headers["Content-Type"]) == (status, content_type)
        assert b'"error"' not in reply.body
    assert ask(server, "DELETE", "/v1/namespaces/a%2Fb").body == b""


def test_pages_go_by_offset(server: FakeIceberg) -> None:
    names = server.add_lance_tables(("n1",), 5)

    def page(query: str) -> tuple[list[str], str | None]:
        answer = ask(server, "GET", f"/v1/namespaces/n1/tables?{query}").json
        return [identifier["name"] for identifier in answer["identifiers"]], answer["next-page-token"]

    assert page("") == page("pageToken=") == (names, None)
    assert page("pageSize=2&pageToken=") == (names[:2], "2")
    assert page("pageSize=3&pageToken=2") == (names[2:], None)
    assert page("pageSize=0&pageToken=") == page("pageSize=0&pageToken=0") == ([], "0")
    reply = ask(server, "GET", "/v1/namespaces?pageSize=2&pageToken=xyz")
    assert error_in(reply) == (500, "NumberFormatException", 'For input string: "xyz"')


@pytest.mark.parametrize(("paging", "count", "token"), [("ignored", 3, None), ("stuck", 3, "stuck")])
def test_paging_can_be_ignored_or_stuck(paging: Any, count: int, token: str | None) -> None:
    with FakeIceberg(Quirks(paging=paging)) as server:
        server.add_lance_tables(("n1",), count)
        for query in ("", "?pageSize=2&pageToken=", f"?pageSize=2&pageToken={token}"):
            answer = ask(server, "GET", f"/v1/namespaces/n1/tables{query}").json
            assert (len(answer["identifiers"]), answer["next-page-token"]) == (count, token)


def test_nessie_differs() -> None:
    with FakeIceberg.nessie() as server:
        root = "/iceberg/v1/main%7Cwarehouse/namespaces"
        assert ask(server, "GET", f"{root}/zz/tables").json == {"identifiers": [], "next-page-token": None}
        assert ask(server, "GET", f"{root}?parent=zz").json["namespaces"] == []
        assert error_in(ask(server, "POST", root, {"namespace": ["gap", "kid"]}))[0] == 404
        for name in ("a/b", "50%", "a.b", "é"):
            assert ask(server, "POST", root, {"namespace": [name]}).status == 200
        assert ask(server, "HEAD", f"{root}/a%2Fb").status == ask(server, "HEAD", f"{root}/50%25").status == 204
        page = ask(server, "GET", f"{root}?pageSize=3&pageToken=").json
        assert page["namespaces"] == [["a/b"], ["50%"], ["a.b"]]
        token = page["next-page-token"]
        assert ask(server, "GET", f"{root}?pageSize=3&pageToken={token}").json["namespaces"] == [["é"]]
        conflict = ask(server, "POST", root, {"namespace": ["é"]})
        assert (error_in(conflict)[:2], "stack" in conflict.json["error"]) == ((409, ""), False)
        create_commit = {"requirements": [{"type": "assert-create"}], "updates": creation("s3://b/t", LANCE, 2)}
        table = f"{root}/a.b/tables/t"
        without_uuid = {**create_commit, "updates": create_commit["updates"][1:]}
        assert [ask(server, "POST", table, body).status for body in (without_uuid, create_commit)] == [400, 200]
        loaded = ask(server, "GET", f"{table}?snapshots=refs")
        assert (len(loaded.json["metadata"]["snapshots"]), "ETag" in loaded.headers) == (2, False)


def test_errors_on_demand_have_the_catalogs_form(server: FakeIceberg) -> None:
    server.fail(503, headers={"Retry-After": "1"}, match="GET /v1/config")
    failed = ask(server, "GET", "/v1/config")
    assert (error_in(failed)[:2], failed.headers["Retry-After"]) == ((503, "SlowDownException"), "1")
    assert ask(server, "GET", "/v1/config").status == 200


def test_a_fixed_token_is_needed_everywhere() -> None:
    with FakeIceberg(token="secret") as server:
        for path in ("/v1/config", "/v1/namespaces"):
            for value, status in ((None, 401), ("Bearer other", 401), ("Bearer secret", 200)):
                headers = {"Authorization": value} if value else {}
                assert ask(server, "GET", path, headers=headers).status == status
        server.expire_tokens()
        reply = ask(server, "GET", "/v1/config", headers={"Authorization": "Bearer secret"})
        assert error_in(reply)[:2] == (401, "NotAuthorizedException")


@pytest.mark.parametrize("expired_status", [401, 419])
def test_tokens_are_issued_and_expire(expired_status: int) -> None:
    with FakeIceberg(client=("me", "pass word"), expires_in=60, expired_status=expired_status) as server:

        def token(form: str) -> Reply:
            return ask(server, "POST", "/v1/oauth/tokens", f"grant_type=client_credentials&{form}")

        def status(token: str) -> int:
            return ask(server, "GET", "/v1/config", headers={"Authorization": f"Bearer {token}"}).status

        refused = token("client_id=me&client_secret=wrong")
        assert (refused.status, refused.json["error"]) == (401, "invalid_client")
        issued = token("client_id=me&client_secret=pass+word&scope=catalog").json
        assert (issued["token_type"], issued["expires_in"], status(issued["access_token"])) == ("Bearer", 60, 200)
        server.expire_tokens()
        assert status(issued["access_token"]) == expired_status
        fresh = token("client_id=me&client_secret=pass+word").json["access_token"]
        assert (status(fresh), status(issued["access_token"])) == (200, expired_status)
        assert (server.tokens.requests, server.tokens.scopes) == (3, [None, "catalog", None])


def test_thousands_of_tables_are_planted(server: FakeIceberg) -> None:
    names = server.add_lance_tables(("big",), 5000)
    listed = ask(server, "GET", "/v1/namespaces/big/tables").json["identifiers"]
    assert [identifier["name"] for identifier in listed] == names
    assert ask(server, "GET", f"/v1/namespaces/big/tables/{names[-1]}").status == 200


def test_what_it_holds_outlives_its_death(server: FakeIceberg) -> None:
    server.add_table(("n1",), "t")
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "GET", "/v1/config")
    server.start()
    assert ask(server, "HEAD", "/v1/namespaces/n1/tables/t").status == 204
