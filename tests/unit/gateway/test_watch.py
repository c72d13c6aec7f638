"""Changes of a catalog as server-sent events, over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import ErrorCode

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import Gateway, MountedNamespace, serving
from lance_ns_async.gateway.request_log import JsonFormatter
from lance_ns_async.gateway.request_log import log as request_log
from tests.fakes.iceberg import FakeIceberg
from tests.support.gateway import Response, send_request
from tests.unit.gateway.test_rights import gateway_for, write_tokens

WATCH = "/v1/table/watch"
NEVER = 86_400
"""Seconds between two looks, of which there is only the first."""
ANN = {"ann": {"rights": "read", "only": ["s.pub_*"]}}
Event = tuple[str, dict[str, Any]]


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        server.add_namespace(["s"])
        yield server


@pytest.fixture
async def ns(server: FakeIceberg) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, "max_retries": "0"}) as opened:
        yield opened


class Stream:
    """The response to a watch, as it arrives."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def block(self) -> str:
        """Returns the next event or comment; the empty string at the end of the response."""
        lines = []
        while line := (await self.response.content.readline()).decode():
            if line == "\n":
                break
            lines.append(line)
        return "".join(lines)

    async def event(self) -> Event | None:
        """Returns the next event; None at the end of the response."""
        while (block := await self.block()).startswith(":"):
            pass
        return parse(block)


@asynccontextmanager
async def watching(gateway: Gateway, token: str | None = None, **fields: Any) -> AsyncIterator[Stream]:
    """Opens a watch, and hangs up at the end of the context."""
    headers = gateway.headers if token is None else {"x-lance-token": token}
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession(read_bufsize=1 << 22) as session,
        session.post(f"{gateway.url}{WATCH}", json={"tables": ["**"], **fields}, headers=headers) as response,
    ):
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Stream(response)


async def look(gateway: Gateway, client: str | None = None, **fields: Any) -> tuple[list[str], str]:
    """Returns the changes that one look sees, as words, and the token to go on from."""
    body = {"tables": ["**"], "every": None, "versions": False, **fields}
    answer = await send_request(gateway, "POST", WATCH, body, None if client is None else {"x-lance-token": client})
    assert answer.status == 200, answer.body
    events = parse_all(answer)
    tokens = [data["token"] for kind, data in events if kind == "token"]
    return [words(it) for it in events if it[0] != "token"], tokens[-1] if tokens else fields["since"]


def parse_all(answer: Response) -> list[Event]:
    data = answer.body
    if answer.headers.get("transfer-encoding") == "chunked":
        data = b""
        rest = answer.body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            data, rest = data + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return [event for block in data.decode().split("\n\n") if (event := parse(block)) is not None]


def parse(block: str) -> Event | None:
    match block.splitlines():
        case [kind, data]:
            assert kind.startswith("event: ") and data.startswith("data: ")
            return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))
    assert block == "" or block.startswith(":")
    return None


def words(event: Event | None) -> str:
    assert event is not None
    kind, data = event
    if kind == "token":
        return kind
    assert data["change"] == kind
    return f"{kind} {'.'.join(data['id'])}"


def content(token: str) -> Any:
    return json.loads(zlib.decompress(base64.urlsafe_b64decode(token)))


def packed(values: Any) -> str:
    raw = values if isinstance(values, bytes) else json.dumps(values, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(zlib.compress(raw)).decode()


async def declare(ns: AsyncNamespace, *names: str) -> None:
    for name in names:
        await ns.declare_table(["s", name], location=f"s3://bucket/{name}")


async def test_changes_arrive_in_order(ns: AsyncNamespace) -> None:
    await declare(ns, "a")
    async with serving(ns) as gateway, watching(gateway, every=1, examine_every=1, versions=False) as stream:
        assert words(await stream.event()) == "token"
        await declare(ns, "b")
        assert await stream.event() == ("created", {"change": "created", "id": ["s", "b"], "location": "s3://bucket/b"})
        assert words(await stream.event()) == "token"
        await ns.deregister_table(["s", "a"])
        await ns.rename_table(["s", "b"], new_table_name="c")
        assert [words(await stream.event()) for _ in range(3)] == ["dropped s.a", "renamed s.c", "token"]


async def test_a_client_that_reconnects_misses_nothing(ns: AsyncNamespace) -> None:
    async with serving(ns) as gateway:
        async with watching(gateway, every=NEVER, versions=False) as stream:
            event = await stream.event()
        assert event is not None
        token = event[1]["token"]
        await declare(ns, "a", "b")
        seen, token = await look(gateway, since=token)
        assert sorted(seen) == ["created s.a", "created s.b"]
        await ns.deregister_table(["s", "a"])
        assert (await look(gateway, since=token))[0] == ["dropped s.a"]
        # The same token again, as after an answer that did not arrive.
        seen, token = await look(gateway, since=token)
        assert seen == ["dropped s.a"] and await look(gateway, since=token) == ([], token)
    # A token outlives the server.
    async with serving(ns) as gateway:
        assert await look(gateway, since=token) == ([], token)


async def test_the_beginning_has_the_existing_tables(ns: AsyncNamespace) -> None:
    await declare(ns, "a")
    async with serving(ns) as gateway:
        body = {"tables": ["s.*"], "every": None, "versions": False}
        events = parse_all(await send_request(gateway, "POST", WATCH, {**body, "existing": True}))
        assert [words(it) for it in events] == ["token", "created s.a", "token"]
        # A client that has received no more than the first event goes on with the tables.
        since = {"since": events[0][1]["token"]}
        again = parse_all(await send_request(gateway, "POST", WATCH, {**body, **since}))
        assert [words(it) for it in again] == ["created s.a", "token"]


async def test_versions_are_changes(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns) as gateway:
        await ns.declare_table(["t"])
        _, token = await look(gateway, versions=True, tables=["t"])
        await ns.write(["t"], pa.table({"id": [1]}), mode="append")
        seen, token = await look(gateway, versions=True, tables=[["t"]], since=token)
        assert seen == ["version t"] and str(tmp_path) not in str(content(token)[1])


async def test_a_client_sees_only_what_it_may_use(ns: AsyncNamespace, server: FakeIceberg, tmp_path: Path) -> None:
    await declare(ns, "a", "pub_a")
    server.add_namespace(["hidden"])
    server.fail(403, times=None, match="GET .*/namespaces/hidden/tables")
    async with gateway_for(ns, tmp_path, ANN) as gateway:
        seen, token = await look(gateway, "ann", existing=True)
        assert seen == ["created s.pub_a"]
        await ns.rename_table(["s", "a"], new_table_name="pub_b")
        await ns.rename_table(["s", "pub_a"], new_table_name="b")
        await declare(ns, "c", "pub_c")
        seen, token = await look(gateway, "ann", since=token)
        assert sorted(seen) == ["created s.pub_b", "created s.pub_c", "dropped s.pub_a"]
        assert [names for names, *_ in content(token)[2]] == [["s", "pub_b"], ["s", "pub_c"]]
        await ns.rename_table(["s", "pub_c"], new_table_name="pub_d")
        assert (await look(gateway, "ann", since=token))[0] == ["renamed s.pub_d"]
        for tables in (["s.a"], [["s", "b"]], ["s.pub_*", "s.unknown"]):
            answer = await send_request(gateway, "POST", WATCH, {"tables": tables}, {"x-lance-token": "ann"})
            assert (answer.status, answer.code) == (403, ErrorCode.PERMISSION_DENIED), tables
        answer = await send_request(gateway, "POST", WATCH, {"tables": ["**"]}, {"x-lance-token": "eve"})
        assert answer.status == 401 and gateway.watches.count == 0


async def test_a_token_of_another_client_shows_nothing(ns: AsyncNamespace, server: FakeIceberg, tmp_path: Path) -> None:
    """What the token says of tables that the client may not use is the same whether or not they exist."""
    await declare(ns, "a", "pub_a")
    async with gateway_for(ns, tmp_path, {**ANN, "bob": {"rights": "read"}}) as gateway:
        _, token = await look(gateway, "bob")
        format, of, tables = content(token)
        forged = packed([format, of, [*tables, [["s", "guess"], "s3://bucket/guess", None, None]]])
        assert sorted((await look(gateway, "ann", since=forged))[0]) == ["dropped s.a", "dropped s.guess"]
        # Also if it is not known which tables there are.
        server.fail(403, times=None, match="GET .*/namespaces/s/tables")
        seen, _ = await look(gateway, "ann", since=forged)
        assert sorted(seen) == ["dropped s.a", "dropped s.guess", "unreadable s"]


async def test_a_location_of_a_token_is_not_read(ns: AsyncNamespace, server: FakeIceberg, tmp_path: Path) -> None:
    secret = str(tmp_path / "secret.lance")
    lance.write_dataset(pa.table({"id": [1]}), secret)
    location = (tmp_path / "pub_a").as_uri()
    await ns.declare_table(["s", "pub_a"], location=location)
    async with gateway_for(ns, tmp_path, ANN) as gateway:
        _, token = await look(gateway, "ann", versions=True)
        format, of, _ = content(token)
        forged = packed([format, of, [[["s", "pub_a"], secret, None, None]]])
        headers = {"x-lance-token": "ann"}
        body = {"tables": ["**"], "every": None, "since": forged}
        (change, _) = parse_all(await send_request(gateway, "POST", WATCH, body, headers))
        assert change == ("replaced", {"change": "replaced", "id": ["s", "pub_a"], "location": location})
        # The catalog does not say where the table is.
        server.fail(403, times=None, match="GET .*/namespaces/s/tables")
        (change, _) = parse_all(await send_request(gateway, "POST", WATCH, body, headers))
        assert words(change) == "unreadable s" and "version" not in change[1]


@pytest.mark.parametrize(
    "values",
    [
        *(b"[" * 100_000, b" " * (17 << 20) + b"[]", 5, {}, [2, [], []], [2, 5, []], [2, [5], []]),
        *([2, ["OF", "**"], [5]], [2, ["OF", "**"], [[["t"]]]], [2, ["OF", "**"], [["t", "s3://b", None, None]]]),
        *([2, ["OF", "**"], [[[], "s3://b", None, None]]], [2, ["OF", "**"], [[[5], "s3://b", None, None]]]),
        *([2, ["OF", "**"], [[["t"], 5, None, None]]], [2, ["OF", "**"], [[["t"], "file://[", None, None]]]),
        *([2, ["OF", "**"], [[["t"], "s3://b", 5, None]]], [2, ["OF", "**"], [[["t"], "s3://b", None, "1"]]]),
        *([2, ["OF", "s.*"], []], [2, ["other", "**"], []]),
    ],
    ids=lambda values: str(values)[-60:],
)
async def test_a_wrong_token_is_refused(ns: AsyncNamespace, values: Any) -> None:
    async with serving(ns) as gateway:
        _, token = await look(gateway)
        if isinstance(values, list) and len(values) > 1 and isinstance(values[1], list):
            values = [values[0], [content(token)[1][0] if it == "OF" else it for it in values[1]], *values[2:]]
        answer = await send_request(gateway, "POST", WATCH, {"tables": ["**"], "since": packed(values), "every": None})
        assert (answer.status, answer.code) == (400, ErrorCode.INVALID_INPUT), answer.body
        assert gateway.watches.count == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        *(({}, "tables: it is missing"), ({"tables": []}, "tables"), ({"tables": "s.**"}, "tables")),
        *(({"tables": [5]}, "tables"), ({"tables": ["s..t"]}, "empty"), ({"tables": ["s..*"]}, "empty")),
        ({"tables": ["**"], "every": 0.5}, "every: Input should be greater than or equal to 1"),
        ({"tables": ["**"], "every": True}, "every"),
        ({"tables": ["**"], "examine_every": 0}, "examine_every: Input should be greater than or equal to 1"),
        ({"tables": ["**"], "existing": "yes"}, "existing"),
        ({"tables": ["**"], "since": "x"}, "since: it is not the token of a change"),
        ({"tables": ["**"], "since": "x" * (3 << 20) + "x"}, "since: String should have at most"),
        ({"tables": ["**"], "every_s": 5}, "every_s: unknown, did you mean every"),
    ],
    ids=lambda it: str(it)[:50],
)
async def test_a_malformed_request_is_refused(ns: AsyncNamespace, body: Mapping[str, Any], message: str) -> None:
    async with serving(ns) as gateway:
        answer = await send_request(gateway, "POST", WATCH, body)
    assert (answer.status, answer.code) == (400, ErrorCode.INVALID_INPUT) and message in answer.json["error"]


async def test_an_error_of_the_first_look_is_the_response(ns: AsyncNamespace, server: FakeIceberg) -> None:
    server.fail(403, times=None, match="GET .*/namespaces/s/tables")
    async with serving(ns) as gateway:
        answer = await send_request(gateway, "POST", WATCH, {"tables": ["s.*"]})
        assert (answer.status, answer.code) == (403, ErrorCode.PERMISSION_DENIED)
        assert gateway.watches.count == 0


async def test_a_watch_ends_when_its_client_hangs_up(ns: AsyncNamespace) -> None:
    async with serving(ns, max_watches=1) as gateway:
        async with watching(gateway, every=NEVER) as stream:
            assert words(await stream.event()) == "token" and gateway.watches.count == 1
            answer = await send_request(gateway, "POST", WATCH, {"tables": ["**"]})
            assert (answer.status, answer.code) == (503, ErrorCode.SERVICE_UNAVAILABLE)
            assert answer.headers["retry-after"] == "10"
        async with asyncio.timeout(60):
            while gateway.watches.count:
                await send_request(gateway, "GET", "/health")
        assert (await look(gateway))[0] == []


async def test_the_end_of_the_server_ends_watches(ns: AsyncNamespace) -> None:
    async with asyncio.timeout(60):
        async with serving(ns, grace=600) as gateway:
            context = watching(gateway, every=NEVER)
            stream = await context.__aenter__()
            assert words(await stream.event()) == "token"
        # The response is complete: the client would otherwise raise an error.
        assert await stream.event() is None and (gateway.cut_off, gateway.watches.count) == (0, 0)
        await context.__aexit__(None, None, None)


async def test_comments_come_while_nothing_happens(ns: AsyncNamespace) -> None:
    async with serving(ns, heartbeat=0.001) as gateway, watching(gateway, every=NEVER) as stream:
        assert words(await stream.event()) == "token"
        assert [await stream.block() for _ in range(3)] == [":\n"] * 3


async def test_a_watch_ends_with_the_rights_of_its_client(ns: AsyncNamespace, tmp_path: Path) -> None:
    async with gateway_for(ns, tmp_path, {**ANN, "bob": {"rights": "read"}}) as gateway:
        async with watching(gateway, "ann", every=1) as ann, watching(gateway, "bob", every=1) as bob:
            assert words(await ann.event()) == words(await bob.event()) == "token"
            write_tokens(tmp_path / "tokens.toml", {"ann": {"rights": "read"}})
            kind, error = await ann.event() or ("", {})
            assert (kind, error["code"]) == ("error", ErrorCode.PERMISSION_DENIED)
            assert "ann have changed" in error["error"]
            kind, error = await bob.event() or ("", {})
            assert (kind, error["code"]) == ("error", ErrorCode.UNAUTHENTICATED)
            assert await ann.event() is None and await bob.event() is None


async def test_watch_logs_hide_the_token(ns: AsyncNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, request_log.name)
    async with gateway_for(ns, tmp_path, ANN) as gateway:
        _, token = await look(gateway, "ann")
        await look(gateway, "ann", since=token)
        headers = {"x-lance-token": "ann", "Origin": "x"}
        await send_request(gateway, "POST", WATCH, {"tables": ["**"], "since": token}, headers)
    lines = [json.loads(JsonFormatter().format(it)) for it in caplog.records if it.name == request_log.name]
    assert [(it["principal"], it["operation"], it["status"]) for it in lines] == [
        ("ann", "watch", 200),
        ("ann", "watch", 200),
        (None, f"POST {WATCH}", 403),
    ]
    assert token not in caplog.text


async def test_the_document_has_the_watch_of_a_catalog_alone(ns: AsyncNamespace) -> None:
    async with serving(ns) as gateway:
        document = (await send_request(gateway, "GET", "/openapi.json")).json
        (media,) = document["paths"][WATCH]["post"]["responses"]["200"]["content"]
        assert media == "text/event-stream"
        fields = document["components"]["schemas"]["WatchRequest"]["properties"]
        assert "after which the watch goes on" in fields["since"]["description"]
    async with serving(MountedNamespace({"a": ns})) as gateway:
        assert WATCH not in (await send_request(gateway, "GET", "/openapi.json")).json["paths"]
        answer = await send_request(gateway, "POST", WATCH, {"tables": ["**"]})
        assert (answer.status, answer.code) == (406, ErrorCode.UNSUPPORTED)


async def test_one_client_has_a_share_of_the_watches(ns: AsyncNamespace, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, {"ann": {"rights": "read"}, "bob": {"rights": "read"}})
    async with serving(ns, tokens=tokens, token="owner", max_watches=4) as gateway, watching(gateway, "ann"):
        refused = await send_request(gateway, "POST", WATCH, {"tables": ["**"]}, {"x-lance-token": "ann"})
        assert refused.status == 503 and b"1 watches of ann are in progress, the maximum for one client" in refused.body
        async with watching(gateway, "bob"), watching(gateway, "owner"), watching(gateway, "owner"):
            assert gateway.watches.count == 4
    assert gateway.watches.count == 0


async def test_a_token_with_too_many_tables_is_refused(ns: AsyncNamespace) -> None:
    async with serving(ns) as gateway:
        _, token = await look(gateway, existing=True)
        values = content(token)
        values[2] = [[["n", f"t{number}"], "", None, 1] for number in range(20_001)]
        body = {"tables": ["**"], "every": None, "versions": False, "since": packed(values)}
        refused = await send_request(gateway, "POST", WATCH, body)
        assert refused.status == 400 and b"since: has more than 20000 tables" in refused.body


@pytest.mark.parametrize("operation", ["search", "watch"])
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("**." * 1_000 + "x", b"tables: 2000 wildcards; at most 100 are allowed"),
        ("a" * 4_096 + "*", b"tables: 4097 characters of patterns; at most 4096 are allowed"),
        (".".join("a" * 101) + "*", b"has 101 levels; use 100 or fewer"),
    ],
)
async def test_patterns_have_limits(ns: AsyncNamespace, operation: str, pattern: str, message: bytes) -> None:
    fields = {"full_text": "a"} if operation == "search" else {"every": None}
    async with serving(ns) as gateway:
        refused = await send_request(gateway, "POST", f"/v1/table/{operation}", {"tables": [pattern], **fields})
        assert refused.status == 400 and message in refused.body
