"""Descriptions of many tables in one request, between the `rest` backend and a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import NamespaceNotFoundError, PermissionDeniedError, TableNotFoundError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.gateway import Gateway, serving
from lance_ns_async.gateway.access import hash_of
from tests.support.gateway import ask

TABLES, FROM = 1200, 20
"""Numbers of tables: for several batches, and the minimum for one."""

BATCH = "/v1/namespace/sales/table/batch-describe"


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    properties = {"root": str(tmp_path / "lake"), "storage.secret_access_key": "hush-hush"}
    async with AsyncNamespace.connect("dir", properties) as ns:
        await ns.create_namespace({"id": ["sales"]})
        for number in range(5):
            await ns.declare_table({"id": ["sales", f"t{number}"], "properties": {"n": str(number)}})
        yield ns


def connect(gateway: Gateway, token: str | None = None) -> AsyncNamespace:
    properties = {"uri": gateway.url, "auth_token": token or gateway.token}
    return AsyncNamespace.connect("rest", properties)


async def test_a_gateway_describes_many_tables_at_once(ns: AsyncNamespace) -> None:
    calls: list[str] = []
    async with serving(ns) as gateway, connect(gateway) as client:
        with client.observe(lambda call: calls.append(call.operation)):
            names = [f"t{number}" for number in range(TABLES)]
            result = await client.describe_tables([["sales", name] for name in names])
        assert sorted(id.name for id in result.tables) == [f"t{number}" for number in range(5)]
        assert all(isinstance(error, TableNotFoundError) for error in result.errors.values())
        assert len(result.errors) == TABLES - 5
        # Each table that is not in an answer is asked for, to tell why.
        assert calls.count("describe_tables") == 3 and calls.count("describe_table") == TABLES - 5
        alone = await client.describe_table({"id": ["sales", "t3"]})
        table = result.tables[next(id for id in result.tables if id.name == "t3")]
        assert (table.location, dict(table.properties or {})) == (alone.location, {"n": "3"})
        assert dict(table.storage_options or {}) == alone.storage_options == {"secret_access_key": "hush-hush"}
        missing = await client.describe_tables([["gone", name] for name in names[:FROM]])
        assert all(isinstance(error, NamespaceNotFoundError) for error in missing.errors.values())


async def test_other_servers_are_asked_once(ns: AsyncNamespace) -> None:
    class Foreign:
        """A namespace without the extension."""

        def __getattr__(self, name: str) -> Any:
            if name == "describe_tables":
                raise AttributeError(name)
            return getattr(ns, name)

    calls: list[str] = []
    async with serving(Foreign()) as gateway, connect(gateway) as client:
        with client.observe(lambda call: calls.append(call.operation)):
            for _ in range(2):
                # A batch of each namespace would be sent at the same time.
                ids = [[parent, f"t{number}"] for parent in ("sales", "gone") for number in range(FROM)]
                result = await client.describe_tables(ids)
                assert len(result.tables) == 5
    assert calls.count("describe_tables") == 1 and calls.count("describe_table") == 4 * FROM


async def test_a_batch_has_what_its_client_may_use(ns: AsyncNamespace, tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(f'[ann]\nrights = "read"\nonly = ["sales.t[12]"]\nsha256 = ["{hash_of("ann")}"]\n')
    async with serving(ns, tokens=file) as gateway, connect(gateway, "ann") as client:
        body = {"names": [f"t{number}" for number in range(5)]}
        answer = await ask(gateway, "POST", BATCH, body, {"x-lance-token": "ann"})
        assert answer.status == 200 and answer.json["tables"].keys() == {"t1", "t2"}
        assert b"hush-hush" not in answer.body
        result = await client.describe_tables([["sales", f"t{number}"] for number in range(FROM)])
        assert sorted(id.name for id in result.tables) == ["t1", "t2"] and len(result.errors) == FROM - 2
        assert all(isinstance(error, PermissionDeniedError) for error in result.errors.values())
        other = await ask(gateway, "POST", BATCH.replace("sales", "other"), body, {"x-lance-token": "ann"})
        assert other.status == 403


async def test_one_client_describes_at_most_four_batches_at_once(ns: AsyncNamespace, tmp_path: Path) -> None:
    shares: dict[str, list[int]] = {"ann": [], "ben": []}
    running = {"ann": 0, "ben": 0}
    ann_is_full, ben_is_here = asyncio.Event(), asyncio.Event()

    class Slow:
        """A namespace whose batches wait for that of `ben`."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ns, name)

        async def describe_tables(self, ids: Sequence[TableId], *, max_in_flight: int, **more: Any) -> Any:
            client = {"t0": "ann", "t1": "ben"}[ids[0].name]
            shares[client].append(max_in_flight)
            running[client] += 1
            assert running[client] <= 4
            if running["ann"] == 4:
                ann_is_full.set()
            if client == "ben":
                ben_is_here.set()
            await ben_is_here.wait()
            running[client] -= 1
            return await ns.describe_tables(ids, max_in_flight=max_in_flight, **more)

    file = tmp_path / "tokens.toml"
    file.write_text("".join(f'[{it}]\nrights = "read"\nsha256 = ["{hash_of(it)}"]\n' for it in shares))
    async with serving(Slow(), tokens=file) as gateway:

        async def describe(client: str, name: str) -> int:
            return (await ask(gateway, "POST", BATCH, {"names": [name]}, {"x-lance-token": client})).status

        sent = [asyncio.create_task(describe("ann", "t0")) for _ in range(6)]
        await ann_is_full.wait()
        assert await describe("ben", "t1") == 200
        assert await asyncio.gather(*sent) == [200] * 6
    # They divide eight calls among those that have begun.
    assert all(2 <= share <= 8 for share in shares["ann"]) and sum(shares["ann"][:4]) <= 8 + 4 + 2 + 2
    assert shares["ben"] == [8]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "names: it is missing"),
        ({"names": "t"}, "names"),
        ({"names": [1]}, "names"),
        ({"names": ["t"] * 1001}, "names"),
        ({"names": [""]}, "empty"),
        ({"names": ["t"], "limit": 1}, "limit: unknown"),
    ],
)
async def test_a_malformed_batch_is_refused(ns: AsyncNamespace, body: Mapping[str, Any], message: str) -> None:
    async with serving(ns) as gateway:
        answer = await ask(gateway, "POST", BATCH, body)
    assert (answer.status, answer.code) == (400, 13) and message in answer.json["error"]
