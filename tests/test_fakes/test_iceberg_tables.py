"""Tables in the fake Iceberg REST catalog: commits, loads, drops and renames like those of real servers."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.iceberg import LANCE, FakeIceberg
from tests.fakes.iceberg.catalog import Dropped, Quirks
from tests.fakes.iceberg.errors import error_in
from tests.fakes.iceberg.metadata import creation
from tests.fakes.raw import Reply, ask


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as running:
        yield running


def declare(server: FakeIceberg, path: str, updates: list[dict[str, Any]], *kinds: str) -> Reply:
    requirements = [{"type": kind} for kind in kinds or ("assert-create",)]
    return ask(server, "POST", f"/v1/namespaces/{path}", {"requirements": requirements, "updates": updates})


def test_a_table_is_created_by_one_commit(server: FakeIceberg) -> None:
    server.add_namespace(("n1", "sub"))
    field = {"id": 1, "name": "decimal(1,2)", "required": False, "type": "decimal(20,0)"}
    schema = {"type": "struct", "schema-id": 1, "fields": [field]}
    real = [
        {"action": "add-schema", "schema": schema, "last-column-id": 1},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    properties = {**LANCE, "write.metadata.path": "s3://b/_irc"}
    updates = creation("s3://b/one.lance/", properties, snapshots=2) + real
    reply = declare(server, "n1%2Esub/tables/one", updates)
    assert (reply.status, "ETag" in reply.headers) == (200, True)
    metadata = reply.json["metadata"]
    assert reply.json["metadata-location"].startswith("s3://b/_irc/00000-")
    assert metadata == server.metadata(("n1", "sub"), "one")
    assert (metadata["table-uuid"], metadata["location"]) == (updates[0]["uuid"], "s3://b/one.lance")
    assert (metadata["properties"], metadata["current-schema-id"]) == (properties, 1)
    assert metadata["schemas"][1] == {**schema, "fields": [{**field, "type": "decimal(20, 0)"}]}
    assert (metadata["current-snapshot-id"], metadata["last-sequence-number"]) == (2, 2)
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [2]
    again = declare(server, "n1%2Esub/tables/one", updates)
    assert error_in(again) == (409, "CommitFailedException", "Requirement failed: table already exists")
    missing = declare(server, "zz/tables/one", updates)
    assert error_in(missing)[:2] == (404, "NoSuchNamespaceException")


@pytest.mark.parametrize(
    ("without", "status", "kind"),
    [
        (("assign-uuid", "upgrade-format-version", "set-properties", "set-current-schema"), 200, None),
        (("set-default-spec", "set-default-sort-order"), 200, None),
        (("set-location",), 400, "IllegalArgumentException"),
        (("add-schema",), 400, "ValidationException"),
        (("add-schema", "set-current-schema"), 500, "NullPointerException"),
        (("add-spec",), 400, "ValidationException"),
        (("add-spec", "set-default-spec"), 500, "NullPointerException"),
        (("add-sort-order", "set-default-sort-order"), 500, "NullPointerException"),
    ],
)
def test_a_creation_that_lacks_something(
    server: FakeIceberg, without: tuple[str, ...], status: int, kind: str | None
) -> None:
    server.add_namespace(("n1",))
    updates = [update for update in creation("s3://b/t", LANCE) if update["action"] not in without]
    reply = declare(server, "n1/tables/t", updates)
    assert reply.status == status
    assert (server.metadata(("n1",), "t") is not None) == (status == 200)
    if kind is not None:
        assert error_in(reply)[1] == kind


def test_commits_of_unknown_kind_or_to_a_missing_table(server: FakeIceberg) -> None:
    server.add_namespace(("n1",))
    for updates, kind in ((creation("s3://b/t", LANCE), "bogus"), ([{"action": "bogus"}], "assert-create")):
        reply = declare(server, "n1/tables/t", updates, kind)
        assert (reply.status, reply.headers["Content-Type"]) == (500, "text/html;charset=iso-8859-1")
    change = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    reply = ask(server, "POST", "/v1/namespaces/n1/tables/t", change)
    assert error_in(reply) == (404, "NoSuchTableException", "Table does not exist: n1.t")


def test_a_commit_changes_a_table_whose_uuid_is_asserted(server: FakeIceberg) -> None:
    server.add_table(("n1",), "t")
    before = server.metadata(("n1",), "t") or {}
    change = [
        {"action": "set-properties", "updates": {"a": "b"}},
        {"action": "remove-properties", "removals": ["managed_by"]},
    ]
    for uuid, status in (("other", 409), (before["table-uuid"], 200)):
        body = {"requirements": [{"type": "assert-table-uuid", "uuid": uuid}], "updates": change}
        assert ask(server, "POST", "/v1/namespaces/n1/tables/t", body).status == status
    after = server.metadata(("n1",), "t") or {}
    assert (after["properties"], len(after["metadata-log"])) == ({"table_type": "lance", "a": "b"}, 1)


async def test_of_racing_creations_one_wins(server: FakeIceberg) -> None:
    server.add_namespace(("n1",))
    body = {"requirements": [{"type": "assert-create"}], "updates": creation("s3://b/t", LANCE)}
    url = f"{server.endpoint}/v1/namespaces/n1/tables/t"
    async with httpx.AsyncClient(trust_env=False) as client, asyncio.TaskGroup() as tasks:
        racing = [tasks.create_task(client.post(url, json=body)) for _ in range(8)]
    assert sorted(task.result().status_code for task in racing) == [200, *[409] * 7]


def test_loading_gives_what_was_planted(server: FakeIceberg) -> None:
    location = server.add_table(("n1",), "t", snapshots=3)
    server.add_table(("n1",), "plain", properties={}, location="s3://x/plain")
    server.add_table(("n1",), "third", format_version=3)

    def load(path: str) -> Any:
        return ask(server, "GET", f"/v1/namespaces/n1/tables/{path}").json["metadata"]

    assert [s["snapshot-id"] for s in load("t")["snapshots"]] == [1, 2, 3]
    refs = load("t?snapshots=refs")
    assert [s["snapshot-id"] for s in refs["snapshots"]] == [refs["current-snapshot-id"]] == [3]
    assert (refs["location"], refs["properties"]) == (location, LANCE)
    plain = load("plain?snapshots=refs")
    assert (plain["location"], plain["properties"], plain["current-snapshot-id"]) == ("s3://x/plain", {}, -1)
    assert (load("third")["format-version"], load("third")["current-snapshot-id"]) == (3, None)
    assert ask(server, "GET", "/v1/namespaces/n1/tables/t?snapshots=bad").status == 400
    missing = ask(server, "GET", "/v1/namespaces/zz/tables/zz")
    assert error_in(missing) == (404, "NoSuchTableException", "Table does not exist: zz.zz")


def test_loads_carry_the_configuration_that_was_set() -> None:
    with FakeIceberg(load_config={"s3.region": "here"}) as server:
        server.add_table(("n1",), "t")
        assert ask(server, "GET", "/v1/namespaces/n1/tables/t").json["config"] == {"s3.region": "here"}


def test_etags_have_no_quotes_and_grow_under_gzip(server: FakeIceberg) -> None:
    server.add_table(("n1",), "t")
    path = "/v1/namespaces/n1/tables/t"
    plain = ask(server, "GET", path)
    zipped = ask(server, "GET", path, headers={"Accept-Encoding": "gzip"})
    tag = plain.headers["ETag"]
    assert (zipped.headers["ETag"], gzip.decompress(zipped.body)) == (f"{tag}--gzip", plain.body)
    assert ask(server, "GET", f"{path}?snapshots=refs").headers["ETag"] != tag
    for known, status in ((tag, 304), (f'"{tag}"', 200), (f"{tag}--gzip", 200)):
        assert ask(server, "GET", path, headers={"If-None-Match": known}).status == status


def test_dropping_a_table_records_the_purge(server: FakeIceberg) -> None:
    for name in ("a", "b"):
        server.add_table(("n1", "sub"), name)
    path = "/v1/namespaces/n1%2Esub"
    full = ask(server, "DELETE", path)
    message = "Namespace n1.sub is not empty. Contains 2 table(s)."
    assert error_in(full) == (409, "NamespaceNotEmptyException", message)
    replies = [ask(server, "DELETE", f"{path}/tables/{t}") for t in ("a?purgeRequested=false", "b", "b", "zz")]
    assert [reply.status for reply in replies] == [204, 204, 404, 404]
    assert server.dropped == [Dropped(("n1", "sub"), "a", "false"), Dropped(("n1", "sub"), "b", None)]
    assert ask(server, "DELETE", path).status == 204


def test_renaming_a_table(server: FakeIceberg) -> None:
    server.add_table(("n1",), "a")
    server.add_table(("n1",), "b")
    server.add_namespace(("n1", "sub"))

    def rename(source: list[str], destination: list[str]) -> Reply:
        ends = (("source", source), ("destination", destination))
        body = {end: {"namespace": id[:-1], "name": id[-1]} for end, id in ends}
        return ask(server, "POST", "/v1/tables/rename", body)

    assert error_in(rename(["n1", "a"], ["n1", "b"]))[:2] == (409, "AlreadyExistsException")
    assert error_in(rename(["n1", "a"], ["zz", "a"]))[:2] == (404, "NoSuchNamespaceException")
    assert error_in(rename(["n1", "zz"], ["n1", "b"]))[:2] == (404, "NoSuchTableException")
    assert rename(["n1", "a"], ["n1", "sub", "c"]).status == 204
    assert server.metadata(("n1",), "a") is None
    assert server.metadata(("n1", "sub"), "c") is not None


def test_a_server_can_move_new_tables() -> None:
    with FakeIceberg(Quirks(moves_tables=True)) as server:
        server.add_namespace(("n1",))
        location = declare(server, "n1/tables/t", creation("s3://b/t", LANCE)).json["metadata"]["location"]
        assert location.startswith("s3://b/t_")


def test_a_commit_can_be_carried_out_and_its_answer_lost(server: FakeIceberg) -> None:
    server.add_namespace(("n1",))
    server.cut(when="after", match="POST .*/tables/t$")
    with pytest.raises(ConnectionResetError):
        declare(server, "n1/tables/t", creation("s3://b/t", LANCE))
    assert server.metadata(("n1",), "t") is not None


@pytest.mark.parametrize(
    ("header", "entries", "config"),
    [
        (
            "X-Iceberg-Access-Delegation",
            [{"prefix": "s3://b", "config": {"k": "v"}}],
            {"s3.region": "here", "old": "key"},
        ),
        ("Polaris-Generic-Table-Access-Delegation", None, {"s3.region": "here"}),
    ],
)
def test_credentials_are_given_out_to_those_who_ask(header: str, entries: Any, config: Any) -> None:
    vends = [{"prefix": "s3://b", "config": {"k": "v"}}]
    with FakeIceberg(load_config={"s3.region": "here"}, vends=vends, vends_config={"old": "key"}) as server:
        server.add_table(["a"], "t")
        reply = ask(server, "GET", "/v1/namespaces/a/tables/t", headers={header: "vended-credentials,remote-signing"})
        assert (reply.json.get("storage-credentials"), reply.json["config"]) == (entries, config)


def test_the_endpoint_for_credentials_is_there_only_where_it_is_listed() -> None:
    renews = [{"prefix": "s3://b", "config": {"k": "v"}}]
    for server in (FakeIceberg(), FakeIceberg(renews=renews)):
        with server:
            server.add_table(["a"], "t")
            listed = any("credentials" in path for path in ask(server, "GET", "/v1/config").json["endpoints"])
            reply = ask(server, "GET", "/v1/namespaces/a/tables/t/credentials")
            assert reply.status == (200 if listed else 400)
            if listed:
                assert reply.json == {"storage-credentials": renews}
                assert ask(server, "GET", "/v1/namespaces/a/tables/u/credentials").status == 404
