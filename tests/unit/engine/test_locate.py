"""The cache of vended credentials, and its calls to the catalog."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Barrier
from typing import Any

import lance
import lance_namespace as spec
import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, Namespace, TableId
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.engine.locate import Locator, locate
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import Id, Table
from tests.fakes.clock import skipping_timers
from tests.fakes.memory import MemoryBackend
from tests.fakes.polaris import FakePolaris
from tests.fakes.s3 import FakeS3
from tests.fakes.server import Answer, Received
from tests.fakes.unity import FakeUnity
from tests.support import polaris, unity
from tests.support.errors import catch
from tests.support.lake import ROWS

T, U = TableId(["t"]), TableId(["u"])


class Answering(MemoryBackend):
    """Vends credentials, and counts the calls."""

    capabilities = Capabilities(min_depth=0, max_depth=None, vends=True)

    def __init__(self) -> None:
        super().__init__()
        self.add_other_table([T, U])
        self.describes = 0
        self.on_call = self._count

    def fail(self, error: err.LanceNamespaceError | None) -> None:
        self.faults.clear()
        if error is not None:
            self.faults["describe_table", T] = error

    def lasting(self) -> None:
        options = {"expires_at_millis": str(int(time.time() * 1000) + 3_600_000)}
        for id in self.tables:
            self.tables[id] = Table(id, "mem://t", storage_options=options)

    def _count(self, operation: str, subject: Id) -> None:
        self.describes += operation == "describe_table"


@skipping_timers
async def test_an_error_is_repeated_for_a_second() -> None:
    backend = Answering()
    locator = Locator(backend)
    backend.fail(err.ThrottlingError("Throttled: t"))
    for _ in range(3):
        for ask in (locator.renew(T), locator.locate(T)):
            with pytest.raises(err.ThrottlingError, match=r"^Throttled: t$"):
                await ask
    assert backend.describes == 1
    # The request is for credentials.
    backend.fail(None)
    assert (await backend.describe_table(T)).id == T
    await asyncio.sleep(0.9)
    await catch(err.ThrottlingError, locator.renew(T))
    await asyncio.sleep(0.2)
    assert (await locator.renew(T)).id == T
    backend.fail(err.PermissionDeniedError("Permission denied: t"))
    await catch(err.PermissionDeniedError, locator.renew(T))


@skipping_timers
async def test_credentials_are_given_again_for_a_second_and_to_renew_alone() -> None:
    backend = Answering()
    backend.lasting()
    locator = Locator(backend)
    for _ in range(3):
        await locator.renew(T)
    assert backend.describes == 1
    # Opening a table needs its current state.
    await locator.locate(T)
    assert backend.describes == 2
    await asyncio.sleep(1.1)
    await locator.renew(T)
    assert backend.describes == 3
    backend.fail(err.PermissionDeniedError("Permission denied: t"))
    await asyncio.sleep(1.1)
    await catch(err.PermissionDeniedError, locator.renew(T))


async def test_a_missing_table_is_not_cached() -> None:
    backend = Answering()
    locator = Locator(backend)
    backend.fail(err.TableNotFoundError("Table not found: t"))
    for ask in (locator.renew(T), locator.locate(T)):
        with pytest.raises(err.TableNotFoundError):
            await ask
    # Another process creates it.
    backend.fail(None)
    assert (await locator.locate(T)).id == (await locator.renew(T)).id == T


@pytest.mark.parametrize(
    ("lasts", "options", "ids", "describes"),
    [
        *((True, {}, [T, T], 1), (True, {"limit": 1}, [T, T, U, T], 3), (True, {"memory": 0}, [T, T], 2)),
        # They never end.
        (False, {}, [T, T], 2),
    ],
)
async def test_credentials_of_the_last_tables_are_kept(
    lasts: bool, options: dict[str, Any], ids: list[TableId], describes: int
) -> None:
    backend = Answering()
    if lasts:
        backend.lasting()
    locator = Locator(backend, **options)
    for id in ids:
        await locator.renew(id)
    assert backend.describes == describes


async def test_the_first_caller_may_be_cancelled() -> None:
    locator = Locator(Answering())
    first, other = [asyncio.create_task(locator.renew(T)) for _ in range(2)]
    await asyncio.sleep(0)
    first.cancel()
    assert (await other).id == T and first.cancelled()


async def test_a_catalog_that_gives_out_none_is_called_each_time() -> None:
    backend = MemoryBackend()
    backend.add_other_table([T])
    locator = Locator(backend)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(locator.renew(T))
    assert len(backend.calls) == 3


async def test_only_tables_that_were_changed_are_forgotten() -> None:
    backend = Answering()
    backend.lasting()
    locator = Locator(backend)
    await locator.renew(T)
    for changed, describes in (((U,), 1), ((T,), 2), ((), 3)):
        locator.forget(*changed)
        await locator.renew(T)
        assert backend.describes == describes


async def test_credentials_that_the_catalog_refuses_are_left_out() -> None:
    class Refusing(Answering):
        async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
            table = await super().describe_table(id, vend=vend)
            if vend:
                raise err.InvalidInputError("Invalid input: no credentials for this table")
            return table

    backend = Refusing()
    locator = Locator(backend)
    for _ in range(2):
        assert (await locator.locate(T)).id == T
        await catch(err.InvalidInputError, locator.renew(T), "no credentials")
    # The refusal is remembered, but not the description without credentials.
    assert backend.describes == 3 and (await locate(backend, T)).id == T
    assert backend.describes == 5


async def test_a_table_of_another_format_is_described_once() -> None:
    backend = Answering()
    backend.plant_others([TableId(["csv"])])
    for locate_table in (Locator(backend).locate, partial(locate, backend)):
        backend.describes = 0
        await catch(NotALanceTableError, locate_table(TableId(["csv"])))
        assert backend.describes == 1


ID = ["cat", "a", "t"]
REFRESH = spec.DescribeTableRequest(id=ID, vend_credentials=True)
READERS = 64
MINUTE = 60_000
RETRIES = 3


class Vending(FakePolaris):
    """Vends keys that are valid for a number of milliseconds."""

    life = 60 * MINUTE

    def __init__(self, **more: str) -> None:
        super().__init__(credential=None)
        self._config = {"s3.access-key-id": "key", "s3.secret-access-key": "hush", **more}
        self.add_table("cat", ("a",), "t", base_location="s3://lake/t")

    def handle(self, request: Received) -> Answer:
        answer = super().handle(request)
        if not answer.body.startswith(b'{"table"'):
            return answer
        until = str(int(time.time() * 1000) + self.life)
        entry = {"prefix": "s3://", "config": {**self._config, "s3.session-token-expires-at-ms": until}}
        return Answer.of({**json.loads(answer.body), "storage-access-configs": [entry]})


@pytest.fixture
def server() -> Iterator[Vending]:
    with Vending() as running:
        yield running


async def test_on_unity_that_is_a_describe_and_a_vend() -> None:
    key = {"access_key_id": "key", "secret_access_key": "hush", "session_token": "t"}
    with FakeUnity(credentials={"aws_temp_credentials": key}) as server:
        server.add_table("main", "a", "t")
        async with unity.connected(server) as ns:
            with server.hold() as hold:
                async with asyncio.TaskGroup() as group:
                    for _ in range(READERS):
                        group.create_task(unity.described(ns, "main", "a", "t", vend=True))
                    await hold.reached()
                    hold.release()
        assert unity.list_requests(server) == ["GET tables/main.a.t", "POST temporary-table-credentials"]


@pytest.mark.parametrize(
    ("status", "error", "sent"),
    [
        (429, err.ThrottlingError, 1 + RETRIES),
        (503, err.ServiceUnavailableError, 1 + RETRIES),
        (403, err.PermissionDeniedError, 1),
    ],
)
def test_a_failed_refresh_is_not_repeated(
    server: Vending, status: int, error: type[err.LanceNamespaceError], sent: int
) -> None:
    server.fail(status, times=None)
    properties = {**server.properties, **polaris.QUICK, "max_retries": str(RETRIES)}
    messages = set()
    with Namespace("polaris", properties) as ns:
        for _ in range(17):
            with pytest.raises(error, match=r"cat\$a\$t \(describe_table: ") as caught:
                ns.describe_table(REFRESH)
            messages.add(str(caught.value))
    assert len(server.requests) == sent
    assert len(messages) == 1 and all("hush" not in message for message in messages)


def test_readers_of_one_table_renew_its_credentials_by_one_call() -> None:
    """Each with a separate object store, like datasets that were opened without a common session."""
    with FakeS3() as s3:
        lance.write_dataset(ROWS, "s3://lake/t", storage_options=s3.options)
        with _vending(s3) as server, Namespace("polaris", {**server.properties, **polaris.QUICK}) as ns:
            datasets = [lance.dataset(namespace_client=_Asking(ns), table_id=ID) for _ in range(READERS)]
            server.life = 60 * MINUTE
            server.clear()
            start = Barrier(READERS)

            def read(dataset: Any) -> int:
                start.wait()
                rows: int = dataset.to_table().num_rows
                return rows

            with ThreadPoolExecutor(READERS) as threads:
                assert set(threads.map(read, datasets)) == {3}
            # Two calls if the machine is so busy that the requests are more than a second apart.
            assert len(server.requests) in (1, 2)


class _Asking(spec.LanceNamespace):
    """A namespace that is always called for credentials; pylance calls it only to renew them."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def namespace_id(self) -> str:
        return self._namespace.namespace_id()

    def describe_table(self, request: spec.DescribeTableRequest) -> spec.DescribeTableResponse:
        return self._namespace.describe_table(REFRESH)


def _vending(s3: FakeS3) -> Vending:
    """Provides keys for the bucket, which Lance renews before it uses them."""
    server = Vending(**{"s3.endpoint": s3.url, "s3.path-style-access": "true", "client.region": "us-east-1"})
    server.life = MINUTE // 2
    return server


Change = Callable[[AsyncNamespace], Awaitable[object]]


async def test_credentials_end_with_the_table(server: Vending) -> None:
    async with polaris.connected(server) as ns:
        assert (await ns.describe_table(REFRESH)).storage_options
        await ns.deregister_table(spec.DeregisterTableRequest(id=ID))
        await catch(err.TableNotFoundError, ns.describe_table(REFRESH))
        await catch(err.TableNotFoundError, ns.table_exists(spec.TableExistsRequest(id=ID)))


FORGETTING: dict[str, Change] = {
    "create_empty_table": lambda ns: ns.create_empty_table({"id": ID}),
    "declare_table": lambda ns: ns.declare_table({"id": ID}),
    "deregister_table": lambda ns: ns.deregister_table({"id": ID}),
    "drop_namespace": lambda ns: ns.drop_namespace({"id": ID[:2]}),
    "drop_table": lambda ns: ns.drop_table({"id": ID}),
    "protect_tables": lambda ns: ns.protect_tables(ID[:2]),
    "rename_table": lambda ns: ns.rename_table({"id": ID, "new_table_name": "u"}),
    "rename_table to it": lambda ns: ns.rename_table({"id": [*ID[:2], "u"], "new_table_name": "t"}),
    "register_table": lambda ns: ns.register_table({"id": ID, "location": "s3://lake/u"}),
    "register_tables": lambda ns: ns.register_tables([{"id": ID, "location": "s3://lake/u"}]),
    "replace a namespace": lambda ns: ns.create_namespace({"id": ID[:2], "mode": "Overwrite"}),
    "write": lambda ns: ns.write(ID, ROWS),
    "write staged files": lambda ns: ns.session.staging().begin(TableId(ID), "create", lambda _: ROWS.schema),
}


@pytest.mark.parametrize("change", FORGETTING.values(), ids=FORGETTING)
async def test_a_change_that_fails_counts_as_one(server: Vending, change: Change) -> None:
    async with polaris.connected(server, max_retries="0") as ns:
        await ns.describe_table(REFRESH)
        server.fail(403, times=None, match="(POST|PUT|DELETE) ")
        with suppress(err.LanceNamespaceError):
            await change(ns)
        server.clear()
        await ns.describe_table(REFRESH)
        assert len(server.requests) == 1


async def test_a_table_changed_while_it_is_described_is_described_anew(server: Vending) -> None:
    moved = spec.RegisterTableRequest(id=ID, location="s3://lake/moved")

    async def move(ns: AsyncNamespace) -> None:
        await ns.deregister_table({"id": ID})
        await ns.register_table(moved)

    async with polaris.connected(server) as ns:
        with server.hold("GET") as hold:
            async with asyncio.TaskGroup() as group:
                first = group.create_task(ns.describe_table(REFRESH))
                await hold.reached()
                # The describe that looks for the old table also waits for the change.
                change = group.create_task(move(ns))
                await hold.reached(2)
                hold.release()
                await change
                second = group.create_task(ns.describe_table(REFRESH))
    assert second.result().location == "s3://lake/moved"
    assert first.result().location in ("s3://lake/t", "s3://lake/moved")


@pytest.mark.parametrize(
    ("life", "options", "calls"),
    [(60 * MINUTE, {}, 1), (MINUTE // 2, {}, 3), (MINUTE // 2, {"storage.refresh_offset_millis": "100"}, 1)],
    ids=["long", "short", "short-and-late"],
)
async def test_credentials_about_to_expire_are_renewed(
    server: Vending, life: int, options: dict[str, str], calls: int
) -> None:
    server.life = life
    async with polaris.connected(server, **options) as ns:
        for _ in range(3):
            await ns.describe_table(REFRESH)
    assert len(server.requests) == calls


async def test_a_declaration_comes_with_credentials_where_they_are_requested(server: Vending) -> None:
    async with polaris.connected(server) as ns:
        request = spec.DeclareTableRequest(id=["cat", "a", "new"], location="s3://lake/new", vend_credentials=True)
        declared = await ns.declare_table(request)
        plain = await ns.declare_table(spec.DeclareTableRequest(id=["cat", "a", "n"], location="s3://lake/n"))
    options = declared.storage_options or {}
    assert options["aws_access_key_id"] == "key" and int(options["expires_at_millis"]) > time.time() * 1000
    assert plain.storage_options is None


async def test_a_declaration_without_its_credentials_stays_and_is_reported() -> None:
    """Without them, it cannot be checked whether another client has written to it."""
    with FakeUnity(credentials={}) as server:
        server.add_schema("main", "a")
        server.fail(403, times=None, match="POST .*credentials")
        async with unity.connected(server) as ns:
            with pytest.raises(err.PermissionDeniedError, match="vend_credentials") as caught:
                await unity.declared(ns, "main", "a", "t", location="s3://lake/t", vend_credentials=True)
            assert await ns.exists(["main", "a", "t"])
            (note,) = caught.value.__notes__
            assert "table main$a$t stays registered at s3://lake/t" in note and "deregister_table removes it" in note
            await ns.deregister_table({"id": ["main", "a", "t"]})


async def test_secrets_are_shown_nowhere(server: Vending, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with polaris.connected(server) as ns:
        assert "hush" in str((await ns.describe_table(REFRESH)).storage_options)
        shown = [repr(ns), repr(vars(ns)), repr(vars(ns.session.backend)), repr(vars(ns.session.locator))]
        server.fail(403, times=None)
        caught = await catch(err.PermissionDeniedError, ns.open(ID))
    assert not any("hush" in text for text in (*shown, str(caught.value), repr(caught.value), caplog.text))
