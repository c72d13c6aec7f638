"""Descriptions of any number of tables in groups: a listing continues where the previous group ended."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError, TableNotFoundError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.engine.describe import Places, describe_tables
from lance_ns_async.model import NamespaceId
from tests.fakes.memory import MemoryBackend, fixed
from tests.fakes.unity import FakeUnity
from tests.support.unity import connected, list_requests

DB = NamespaceId(["db"])
ABLE = Capabilities(0, None, paginates=True, listing_has_locations=True)


def names(count: int) -> list[TableId]:
    return [TableId(["main", "a", f"t{n:04}"]) for n in range(count)]


def pages_asked(server: FakeUnity) -> int:
    return sum(request.startswith("GET tables?") for request in list_requests(server))


async def streamed(ns: AsyncNamespace, ids: list[TableId]) -> list[TableId]:
    """Returns the tables that were found, and checks the order."""
    result = [it async for it in ns.stream_tables(ids)]
    assert [id for id, _ in result] == ids
    return [id for id, became in result if not isinstance(became, LanceNamespaceError)]


async def test_in_the_order_of_a_listing_it_is_read_once() -> None:
    with FakeUnity() as server:
        server.add_lance_tables("main", "a", 4000)
        async with connected(server) as ns:
            assert await streamed(ns, names(4000)) == names(4000)
        # Groups of 500, 1000, 2000 and 500: each reads the last page of the previous one again.
        assert len(list_requests(server)) == pages_asked(server) <= 40 + 3


async def test_what_is_missing_does_not_carry_the_next_group_past_its_tables() -> None:
    with FakeUnity() as server:
        server.add_lance_tables("main", "a", 4000)
        gone = [TableId(["main", "a", f"{id.name}x"]) for id in names(4000)[::100]]
        ids = sorted([*names(4000), *gone])
        async with connected(server) as ns:
            assert await streamed(ns, ids) == names(4000)
        singly = len(list_requests(server)) - pages_asked(server)
        assert singly == 40 and pages_asked(server) <= 3 * 40


async def test_in_no_order_a_long_listing_is_soon_left_alone() -> None:
    with FakeUnity() as server:
        server.add_lance_tables("main", "a", 9000)
        ids = Random(1).sample(names(9000), 1500)
        async with connected(server) as ns:
            assert await streamed(ns, ids) == ids
        assert pages_asked(server) <= 500 / 32 + 1


async def test_a_second_pass_begins_at_the_beginning() -> None:
    backend = MemoryBackend.able(ABLE, fixed(10))
    ids = [DB.table(f"t{n:03}") for n in range(100)]
    backend.plant(ids)
    places: Places = {}
    for group in (ids[:50], ids[50:]):
        (await describe_tables(backend, group, max_in_flight=1, places=places)).raise_for_errors()
    assert Counter(operation for operation, _ in backend.calls) == {"scan_tables": 11}
    (await describe_tables(backend, ids[:50], max_in_flight=1, places=places)).raise_for_errors()
    assert DB not in places
    backend.calls.clear()
    (await describe_tables(backend, ids[:50], max_in_flight=1, places=places)).raise_for_errors()
    assert Counter(operation for operation, _ in backend.calls) == {"scan_tables": 5}


async def test_a_place_that_the_catalog_forgot_is_no_answer() -> None:
    backend = MemoryBackend.able(ABLE, fixed(10))
    ids = [DB.table(f"t{n:03}") for n in range(40)]
    backend.plant(ids)
    places: Places = {}
    await describe_tables(backend, ids[:20], max_in_flight=1, places=places)
    backend.faults["scan_tables", DB] = PermissionDeniedError("Permission denied: no such page token")
    (await describe_tables(backend, ids[20:], max_in_flight=1, places=places)).raise_for_errors()
    assert places == {}


async def test_no_more_is_remembered_than_one_group_has_namespaces() -> None:
    backend = MemoryBackend.able(ABLE, fixed(2))
    places: Places = {}
    for n in range(50):
        ids = [TableId([f"db{n}", f"t{i}"]) for i in range(4)]
        backend.plant(ids)
        (await describe_tables(backend, ids, max_in_flight=1, places=places)).raise_for_errors()
        assert len(places) == 1


async def test_a_directory_is_not_walked_for_a_few_of_its_tables(tmp_path: Path) -> None:
    ids = [TableId([f"t{n:04}"]) for n in range(9000)]
    for id in ids:
        (tmp_path / f"{id.name}.lance").mkdir()
        (tmp_path / f"{id.name}.lance" / ".lance-reserved").touch()
    calls: Counter[str] = Counter()
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        with ns.observe(lambda call: calls.update([call.operation])):
            assert await streamed(ns, ids[:1500]) == ids[:1500]
    assert calls == {"scan_tables": 1, "describe_table": 1000}


@given(
    st.lists(st.lists(st.sampled_from([DB.table(name) for name in "abcdefghijklmnop"]), max_size=16), max_size=8),
    st.sets(st.sampled_from([DB.table(name) for name in "abcdefghijklmnop"])),
    st.integers(1, 6),
    st.integers(1, 2),
)
async def test_whatever_the_groups_each_table_is_what_it_is(
    groups: list[list[TableId]], there: set[TableId], size: int, worth: int
) -> None:
    backend = MemoryBackend.able(Capabilities(0, None, True, True, True, worth), fixed(size))
    backend.plant_namespace(DB)
    backend.plant(sorted(there))
    places: Places = {}
    for group in groups:
        described = await describe_tables(backend, group, max_in_flight=2, places=places)
        assert described.tables == {id: backend.tables[id] for id in group if id in there}
        assert {type(e) for e in described.errors.values()} <= {TableNotFoundError}
        assert set(described.errors) == set(group) - there
