"""Cancellations of operations at any moment leave nothing behind; asyncio's debug mode is on."""

from __future__ import annotations

import asyncio
import gc
import logging
import selectors
import threading
import time
import traceback
from asyncio import constants
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any, Literal

import anyio
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import InternalError, LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async import AsyncNamespace, DirNamespace, IcebergNamespace, NamespaceId, Policy, TableId
from lance_ns_async.calls.tasks import each
from tests.fakes.calls import Turnstile, call, caller, settle
from tests.fakes.clock import skipping_timers
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.server import ThreadedServer
from tests.fakes.unity import FakeUnity
from tests.support.budget import rounds, with_usual

pytestmark = pytest.mark.long
SLOTS = 4
TURN = 5e-5
"""Approximate duration of a turn of the loop, in seconds."""

LATENCY = 0.001
POLICY = Policy(max_in_flight=SLOTS, max_retries=8, backoff_initial=0.001, backoff_max=0.002)
HEDGING = Policy(max_in_flight=SLOTS, max_retries=8, backoff_initial=0.001, backoff_max=0.002, hedge_after=LATENCY)
Work = Literal["describe", "bulk", "list", "walk", "stream"]


@dataclass(frozen=True)
class Place:
    """A catalog with some tables."""

    impl: str
    properties: Mapping[str, str]
    locations: Mapping[TableId, str]
    trouble: Callable[..., None]
    """Makes it fail a number of calls, `times`, for a temporary reason."""
    heal: Callable[[], None]

    @property
    def ids(self) -> Sequence[TableId]:
        return list(self.locations)

    @property
    def parents(self) -> Sequence[NamespaceId]:
        return list(dict.fromkeys(id.parent for id in self.ids))

    def connected(self, policy: Policy = POLICY) -> AsyncNamespace:
        return AsyncNamespace.connect(self.impl, self.properties, policy=policy)


@dataclass(frozen=True)
class Attempt:
    """An operation that is started and cancelled."""

    work: Work
    way: Literal["task", "timeout", "scope", "aclose", "break"]
    after: int
    """Turns of the loop, or items of an iterator, before the cancellation; the operation may have ended by then."""


def slow_again(server: ThreadedServer[Any]) -> Callable[[], None]:
    def heal() -> None:
        server.heal()
        server.delay(LATENCY)

    return heal


attempts = st.lists(
    st.builds(
        Attempt,
        st.sampled_from(["describe", "bulk", "list", "walk", "stream"]),
        st.sampled_from(["task", "timeout", "scope"]),
        st.integers(0, 30) | st.integers(0, 300),
    )
    | st.builds(Attempt, st.sampled_from(["walk", "stream"]), st.sampled_from(["aclose", "break"]), st.integers(0, 12)),
    min_size=1,
    max_size=8,
)
troubles = st.just(0) | st.integers(1, 6)


@contextmanager
def iceberg(_: Path) -> Iterator[Place]:
    with FakeIceberg() as server:
        result = {TableId([n, t]): server.add_table([n], t) for n in ("a", "b") for t in names()}
        trouble = partial(server.fail, 503)
        yield Place("iceberg", {"endpoint": server.endpoint}, result, trouble, slow_again(server))


@contextmanager
def unity(_: Path) -> Iterator[Place]:
    with FakeUnity(short_pages=True) as server:
        result = {TableId(["main", n, t]): server.add_table("main", n, t) for n in ("a", "b") for t in names()}
        yield Place("unity", server.properties, result, server.cut, slow_again(server))


@contextmanager
def hive(tmp: Path) -> Iterator[Place]:
    with FakeHive(tmp) as server:
        result = {}
        for database in ("a", "b"):
            server.add_database("hive", database)
            for name in names():
                location = f"file:///lake/{database}/{name}"
                server.add_table("hive", database, name, location=location)
                result[TableId(["hive", database, name])] = location
        properties = {"uri": server.uri, "root": str(tmp / "root"), "client.pool-size": "3"}
        yield Place("hive3", properties, result, partial(server.cut, "^get_table"), slow_again(server))


@contextmanager
def glue(home: Path) -> Iterator[Place]:
    # Imported here because it needs an extra.
    from tests.support.glue import forget_aws

    with pytest.MonkeyPatch.context() as patch, FakeGlue() as server:
        forget_aws(patch, home)
        for database in ("a", "b"):
            server.add_database("", database)
            server.add_tables("", database, names())
        result = {TableId([n, t]): f"s3://bucket/{n}/{t}.lance" for n in ("a", "b") for t in names()}
        yield Place("glue", server.properties, result, partial(server.fail, "ThrottlingException"), server.heal)


PLACES = {"iceberg": iceberg, "unity": unity, "hive3": hive, "glue": glue}


def names() -> Sequence[str]:
    return [f"t{i}" for i in range(6)]


# By night also the second catalog over HTTP.
@pytest.fixture(scope="module", params=with_usual(PLACES, "iceberg", "hive3", "glue"))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with PLACES[request.param](tmp_path_factory.mktemp("place")) as place:
        place.heal()

        async def main(loop: Watched) -> None:
            async with place.connected() as ns:
                await _answers(ns, place)

        watched(main)
        # Objects that exist by then are excluded from the garbage collections of each example.
        gc.collect()
        gc.freeze()
        yield place


quick = partial(settings, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@quick(max_examples=rounds(2, 10))
@given(attempts, troubles, st.booleans())
def test_abandoned_calls_leave_nothing(place: Place, attempted: Sequence[Attempt], trouble: int, hedging: bool) -> None:
    async def main(loop: Watched) -> None:
        async with place.connected(HEDGING if hedging else POLICY) as ns:
            await _attempted(ns, place, attempted)
            await loop.settled(ns)
            place.heal()
            await _answers(ns, place)
            await loop.settled(ns)
        await loop.settled()

    with _troubled(place, trouble):
        watched(main)


@quick(max_examples=rounds(2, 5))
@given(attempts, troubles)
def test_an_abandoned_call_frees_its_slot(place: Place, attempted: Sequence[Attempt], trouble: int) -> None:
    async def main(loop: Watched) -> None:
        async with place.connected() as one, place.connected() as other:
            assert one.session.caller.slots is other.session.caller.slots
            async with asyncio.TaskGroup() as group:
                group.create_task(_attempted(one, place, attempted))
                group.create_task(_answers(other, place))
            await loop.settled(one, other)
            place.heal()
            await _answers(one, place)
        await loop.settled()

    with _troubled(place, trouble):
        watched(main)


@quick(max_examples=rounds(2, 5))
@given(attempts)
def test_closing_ends_what_is_given_up_at_the_end(place: Place, attempted: Sequence[Attempt]) -> None:
    async def main(loop: Watched) -> None:
        async with place.connected() as ns:
            await _attempted(ns, place, attempted)
        await loop.settled()
        assert await _free(ns)

    watched(main)


@skipping_timers
async def test_a_call_cancelled_before_its_retry_does_not_count_as_done() -> None:
    to, hold = caller(Policy(hedge_after=1.0)), Turnstile()

    async def one(_: int) -> None:
        await call(to, hold)

    task = asyncio.create_task(each(one, range(3), max_in_flight=3))
    await settle()
    asyncio.get_running_loop().call_later(1.0, task.cancel)
    await asyncio.wait([task])
    assert task.cancelled() and hold.inside == 0


class Watched(asyncio.SelectorEventLoop):
    """An event loop in debug mode that reports open connections, and records each complaint."""

    def __init__(self) -> None:
        self.selected = selectors.DefaultSelector()
        super().__init__(self.selected)
        self.set_debug(True)
        # Most of the time would go into the stacks that are recorded for each callback.
        setattr(constants, "DEBUG_STACK_DEPTH", 1)  # noqa: B010 - a constant of another's module
        # The duration of a step depends on the machine, not on the code.
        self.slow_callback_duration = inf
        self.complaints: list[Mapping[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.complaints.append(context))

    @property
    def connections(self) -> int:
        """Returns the number of sockets that the loop watches, without the one by which threads wake it."""
        return len(self.selected.get_map()) - 1

    async def settled(self, *namespaces: AsyncNamespace) -> None:
        """Checks that nothing is in progress, and that only connections of these namespaces are open."""
        gc.collect()
        # An iterator that was left, and a connection that was aborted, end in the following turns.
        for _ in range(20):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        # AWS's client is created in a thread, which continues even if the result is not needed any more.
        until = time.monotonic() + 10
        while left := [one for one in gc.get_objects() if type(one) is AsyncGeneratorType and one.ag_frame is not None]:
            assert time.monotonic() < until, left
            await asyncio.sleep(0.01)
        for ns in namespaces:
            assert await _free(ns)
        most = SLOTS * len(namespaces)
        assert self.connections <= most, [key.fileobj for key in self.selected.get_map().values()]


def watched(main: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
    """Runs a coroutine in such a loop; checks that no thread of it is left."""
    before = set(threading.enumerate())
    loop = Watched()
    with asyncio.Runner(debug=True, loop_factory=lambda: loop) as runner:
        runner.run(main(loop))
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive(), thread
    # Objects that were never closed issue their warnings now.
    gc.collect()
    assert loop.complaints == []


async def _attempted(ns: AsyncNamespace, place: Place, attempted: Sequence[Attempt]) -> None:
    async with asyncio.TaskGroup() as group:
        for attempt in attempted:
            group.create_task(_given_up(ns, place, attempt))


async def _given_up(ns: AsyncNamespace, place: Place, attempt: Attempt) -> None:
    match attempt.way:
        case "task":
            task = asyncio.create_task(_done(ns, place, attempt.work))
            for _ in range(attempt.after):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        case "timeout":
            with suppress(TimeoutError):
                async with asyncio.timeout(attempt.after * TURN):
                    await _done(ns, place, attempt.work)
        case "scope":
            with anyio.move_on_after(attempt.after * TURN):
                await _done(ns, place, attempt.work)
        case "aclose":
            async with aclosing(_items(ns, place, attempt.work)) as items:
                await _read(items, place, attempt.after)
        case "break":
            await _read(_items(ns, place, attempt.work), place, attempt.after)


async def _done(ns: AsyncNamespace, place: Place, work: Work) -> None:
    match work:
        case "describe":
            for id, location in place.locations.items():
                assert (await ns.describe_table(DescribeTableRequest(id=list(id)))).location == location
        case "bulk":
            described = await ns.describe_tables(place.ids)
            assert {id: table.location for id, table in described.raise_for_errors().tables.items()} == place.locations
        case "list":
            listed = (await ns.list_many(place.parents)).raise_for_errors()
            assert {id for ids in listed.tables.values() for id in ids} == set(place.ids)
        case _:
            async with aclosing(_items(ns, place, work)) as items:
                assert await _read(items, place, None) == set(place.ids)


def _items(ns: AsyncNamespace, place: Place, work: Work) -> AsyncGenerator[Any, None]:
    if work == "stream":
        return ns.stream_tables(place.ids)
    return ns.iter_tables(_shared(place.parents), recursive=True)


def _shared(parents: Sequence[NamespaceId]) -> NamespaceId:
    return parents[0].parent


async def _read(items: AsyncGenerator[Any, None], place: Place, enough: int | None) -> set[TableId]:
    """Reads some of the items, or all; checks that each is an existing table, with or without its description."""
    result: set[TableId] = set()
    if enough == 0:
        return result
    async for item in items:
        id = item if isinstance(item, TableId) else item[0]
        assert isinstance(item, TableId) or item[1].location == place.locations[id]
        result.add(id)
        if len(result) == enough:
            break
    return result


async def _answers(ns: AsyncNamespace, place: Place) -> None:
    """Checks that all calls get the correct responses."""
    for work in ("describe", "bulk", "list", "walk", "stream"):
        await _done(ns, place, work)


async def _free(ns: AsyncNamespace) -> bool:
    """Returns whether all slots can be acquired at once, and no more."""
    hold, caller = Turnstile(), ns.session.caller
    most = caller.slots.limit
    async with asyncio.TaskGroup() as group:
        for _ in range(most + 1):
            group.create_task(caller.call(hold, subject=NamespaceId(), operation="hold", safe=False))
        await settle()
        had = hold.inside
        hold.open.set()
    return had == most and caller.slots.has_room


@contextmanager
def _troubled(place: Place, trouble: int) -> Iterator[None]:
    if trouble:
        place.trouble(times=trouble)
    try:
        yield
    finally:
        place.heal()


MISSING = ["nothing"]


def frames(error: BaseException) -> list[str]:
    """Returns the names of the functions in a traceback as it is printed, those of the causes included."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return [line.rpartition(" in ")[2] for line in lines if line.startswith("  File ")]


async def test_an_error_shows_the_callers_line_and_the_public_method(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        with pytest.raises(TableNotFoundError) as raised:
            await ns.describe_table(MISSING)
        assert frames(raised.value) == ["test_an_error_shows_the_callers_line_and_the_public_method", "call"]
        with pytest.raises(NamespaceNotFoundError) as missing:
            [id async for id in ns.iter_tables(["no", "namespace"])]
        assert len(frames(missing.value)) <= 3


@pytest.mark.parametrize(
    "use",
    [
        *(lambda ns: ns.describe_table(MISSING), lambda ns: ns.open(MISSING)),
        *(lambda ns: ns.list_tables(["no", "namespace"]), lambda ns: list(ns.iter_tables(["no", "namespace"]))),
    ],
)
def test_the_sync_namespace_adds_its_own_line_alone(tmp_path: Path, use: Callable[[DirNamespace], Any]) -> None:
    with DirNamespace(root=str(tmp_path)) as ns, pytest.raises(LanceNamespaceError) as raised:
        use(ns)
    assert frames(raised.value)[:2] == ["test_the_sync_namespace_adds_its_own_line_alone", "<lambda>"]
    assert len(frames(raised.value)) <= 5


def test_an_error_that_may_be_a_mistake_of_the_package_stays_whole() -> None:
    with FakeIceberg() as server, IcebergNamespace(endpoint=server.url) as ns:
        server.reply("short and stout", status=418, content_type="text/plain")
        with pytest.raises(InternalError) as raised:
            ns.describe_table(["a", "t"])
    assert len(frames(raised.value)) > 10 and raised.value.__cause__ is not None


def test_all_errors_stay_whole_at_the_level_debug(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lance_ns_async")
    with DirNamespace(root=str(tmp_path)) as ns, pytest.raises(TableNotFoundError) as raised:
        ns.describe_table(MISSING)
    assert len(frames(raised.value)) > 10


def test_the_callers_own_error_stays_the_cause(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise ZeroDivisionError("in the caller's rows")

    with DirNamespace(root=str(tmp_path)) as ns, pytest.raises(LanceNamespaceError) as raised:
        ns.write(["t"], pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), rows()))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
