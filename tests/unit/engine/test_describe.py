"""Bulk describes in groups: each table once, with few calls, and failures that stay alone."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import lance_namespace.errors as err
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.calls.deadline import deadline
from lance_ns_async.engine.describe import Batch, ListingPositions, One, Scan, Step, describe_tables, groups, plan
from lance_ns_async.engine.locate import Locator
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.model import Id, NamespaceId, Table, TableId
from tests.fakes.memory import MemoryBackend, Size, as_asked, fixed
from tests.fakes.unity import FakeUnity
from tests.support.unity import connected, list_requests

DB = NamespaceId(["db"])
IDS = st.builds(
    lambda parent, name: TableId([*parent, name]),
    st.lists(st.sampled_from("xyz"), max_size=2),
    st.sampled_from("abcdefgh"),
)
ABILITIES = st.builds(
    Capabilities,
    st.just(0),
    st.none(),
    paginates=st.just(True),
    listing_has_locations=st.booleans(),
    page_worth=st.integers(1, 3),
    describe_batch=st.sampled_from([0, 0, 1, 3, 4, 7]),
    batch_from=st.integers(1, 4),
    folds_case=st.booleans(),
)
SIZES: st.SearchStrategy[Size] = st.builds(
    lambda sizes, last: fixed(*sizes, last), st.lists(st.integers(0, 4)), st.integers(1, 5)
)


def names_of(step: Step) -> Sequence[TableId]:
    match step:
        case One(id):
            return [id]
        case Batch(parent, names) | Scan(parent, names):
            return [parent.table(name) for name in names]


def tables(*names: str) -> list[TableId]:
    return [DB.table(name) for name in names]


@given(st.lists(IDS, max_size=40), ABILITIES)
def test_a_plan_has_each_id_once_within_capabilities(ids: list[TableId], can: Capabilities) -> None:
    steps = list(plan(ids, can))
    assert Counter([id for step in steps for id in names_of(step)]) == Counter(set(ids))
    for step in steps:
        match step:
            case Batch(_, names):
                assert can.describe_batch >= len(names) > 0
            case Scan(_, names):
                assert can.listing_has_locations and len(names) > 2 * can.page_worth
                assert not can.describe_batch or len(names) < can.batch_from
            case One(id):
                beside = [other for other in set(ids) if other.parent == id.parent]
                assert not can.describe_batch or len(beside) < can.batch_from
                assert not can.listing_has_locations or len(beside) <= 2 * can.page_worth
    scanned = [step.parent for step in steps if isinstance(step, Scan)]
    assert len(scanned) == len(set(scanned))


@given(st.iterables(IDS, max_size=10))
def test_without_shared_answers_ids_are_planned_as_they_come(ids: Sequence[TableId]) -> None:
    given_ids = list(ids)
    assert list(plan(iter(given_ids), Capabilities(0, None))) == [One(id) for id in dict.fromkeys(given_ids)]


def test_a_plan_in_literals() -> None:
    x, y = NamespaceId(["x"]), NamespaceId(["y"])
    ids = [x.table("a"), y.table("a"), x.table("b"), x.table("c"), x.table("a"), TableId(["r"]), y.table("b")]
    both = Capabilities(0, None, listing_has_locations=True, describe_batch=2)
    assert list(plan(ids, both)) == list(plan(ids, Capabilities(0, None, describe_batch=2)))
    of_x, of_y, root = (
        [Batch(x, ["a", "b"]), Batch(x, ["c"])],
        [One(y.table("a")), One(y.table("b"))],
        One(TableId(["r"])),
    )
    assert list(plan(ids, replace(both, batch_from=3))) == [*of_x, *of_y, root]
    assert list(plan(ids, Capabilities(0, None, describe_batch=2))) == [*of_x, Batch(y, ["a", "b"]), root]
    listing = Capabilities(0, None, listing_has_locations=True)
    assert list(plan(ids, listing)) == [Scan(x, ["a", "b", "c"]), *of_y, root]


FATES = st.sampled_from(["lance", "lance", "lance", "unlisted", "other", "missing", "denied"])
"""The behaviour of a table: the last four are in no bulk response, and the last three in none at all."""


def planted(fates: Mapping[TableId, str], can: Capabilities, size: Size) -> MemoryBackend:
    backend = MemoryBackend.able(can, size)
    for id, fate in fates.items():
        if fate == "other":
            backend.plant_others([id])
        elif fate != "missing":
            backend.add_other_table([id])
        if fate in ("unlisted", "denied"):
            backend.unlisted.add(id)
        if fate == "denied":
            backend.faults["describe_table", id] = err.PermissionDeniedError(f"Permission denied: {id}")
    return backend


async def singly(
    backend: MemoryBackend, ids: Sequence[TableId]
) -> Mapping[TableId, Table | type[err.LanceNamespaceError]]:
    """Returns the results of single describes."""
    result: dict[TableId, Table | type[err.LanceNamespaceError]] = {}
    for id in ids:
        try:
            result[id] = await backend.describe_table(id)
        except err.LanceNamespaceError as e:
            result[id] = type(e)
    backend.calls.clear()
    return result


def outcome(described: BulkResult[Table]) -> Mapping[TableId, Table | type[err.LanceNamespaceError]]:
    assert not set(described.tables) & set(described.errors)
    return {**described.tables, **{id: type(e) for id, e in described.errors.items()}}


async def cheaper(backend: MemoryBackend, parent: NamespaceId, names: set[str]) -> int:
    """Returns the calls of the cheapest way; a page counts as many calls as its worth."""
    can = backend.capabilities
    shared = {id.name for id in backend.tables if id.parent == parent and id not in backend.unlisted}
    ways = [len(names)]
    if parent and parent not in backend.namespaces:
        return 1
    if can.describe_batch:
        ways.append(math.ceil(len(names) / can.describe_batch) + len(names - shared))
    elif can.listing_has_locations:
        pages, token, left = 0, None, set(names)
        while left and (pages == 0 or token is not None):
            page = await backend.scan_tables(parent, token)
            pages, token, left = pages + 1, page.token, left - {table.id.name for table in page.items}
        ways.append(pages * can.page_worth + len(left))
    backend.calls.clear()
    return min(ways)


@given(st.dictionaries(IDS, FATES, max_size=40), st.lists(IDS, max_size=40), ABILITIES, SIZES, st.integers(1, 5))
async def test_bulk_costs_at_most_twice_the_optimum(
    fates: dict[TableId, str], ids: list[TableId], can: Capabilities, size: Size, workers: int
) -> None:
    backend = planted(fates, can, size)
    expected = await singly(backend, ids)
    parents = {id.parent: {other.name for other in ids if other.parent == id.parent} for id in ids}
    bounds = {
        parent: 2 * await cheaper(backend, parent, names) + can.page_worth - 1 for parent, names in parents.items()
    }
    backend.most_in_flight = 0
    settled: list[int] = []
    described = await describe_tables(backend, ids, max_in_flight=workers, progress=settled.append)
    assert outcome(described) == expected and len(described) == len(set(ids))
    assert sum(settled) == len(set(ids)) and all(n > 0 for n in settled)
    assert backend.most_in_flight <= workers
    paid: Counter[Id] = Counter()
    for operation, subject in backend.calls:
        parent = NamespaceId(subject[:-1]) if subject.kind == "table" else subject
        paid[parent] += can.page_worth if operation == "scan_tables" else 1
    for parent, bound in bounds.items():
        if not parent or parent in backend.namespaces:
            assert paid[NamespaceId(parent)] <= bound


@given(
    st.dictionaries(IDS, FATES, max_size=30),
    st.lists(IDS, max_size=30),
    ABILITIES,
    SIZES,
    st.dictionaries(st.integers(0, 30), st.sampled_from([err.PermissionDeniedError, err.InternalError]), max_size=10),
)
async def test_a_shared_answer_that_fails_leaves_each_table_its_own_fate(
    fates: dict[TableId, str],
    ids: list[TableId],
    can: Capabilities,
    size: Size,
    faults: Mapping[int, type[err.LanceNamespaceError]],
) -> None:
    backend = planted(fates, can, size)
    expected = await singly(backend, ids)
    shared = itertools.count()

    def fail(operation: str, subject: Id) -> None:
        if operation != "describe_table" and (error := faults.get(next(shared))) is not None:
            raise error(f"{operation} of {subject}")

    backend.on_call = fail
    settled: list[int] = []
    described = await describe_tables(backend, ids, max_in_flight=2, progress=settled.append)
    assert outcome(described) == expected and sum(settled) == len(expected)


@pytest.mark.parametrize("cls", [err.ServiceUnavailableError, err.ThrottlingError, err.UnauthenticatedError])
@pytest.mark.parametrize("can", [Capabilities(0, None, True, True, True), Capabilities(0, None, describe_batch=9)])
async def test_a_catalog_that_is_down_ends_the_plan(can: Capabilities, cls: type[err.LanceNamespaceError]) -> None:
    backend = planted(dict.fromkeys(tables(*"abcdef"), "lance"), can, as_asked)
    for operation in ("scan_tables", "describe_tables"):
        backend.faults[operation, DB] = cls("down")
    for id in tables(*"abcdef"):
        backend.faults["describe_table", id] = cls("down")
    described = await describe_tables(backend, tables(*"abcdef"), max_in_flight=2)
    # After a failed listing, one describe shows whether the catalog is down.
    probes = 1 if can.listing_has_locations and cls is not err.UnauthenticatedError else 0
    assert outcome(described) == dict.fromkeys(tables(*"abcdef"), cls) and len(backend.calls) == 1 + probes


@pytest.mark.parametrize("vends", [False, True])
async def test_after_a_401_the_other_tables_are_not_requested(vends: bool) -> None:
    ids = tables(*"abcdefgh")
    backend = planted(dict.fromkeys(ids, "lance"), Capabilities(0, None, vends=vends), as_asked)
    for id in ids[2:]:
        backend.faults["describe_table", id] = err.UnauthenticatedError("Unauthenticated: expired")
    settled: list[int] = []
    described = await describe_tables(
        backend, ids, max_in_flight=1, progress=settled.append, locator=Locator(backend) if vends else None
    )
    assert set(described.tables) == set(ids[:2]) and list(described.errors) == ids[2:]
    assert {type(e) for e in described.errors.values()} == {err.UnauthenticatedError} and sum(settled) == 8
    assert "another call was not authenticated" in str(described.errors[ids[-1]]) and len(backend.calls) == 3


@pytest.mark.parametrize("vends", [True, False])
async def test_tables_are_described_alone_if_their_catalog_vends_credentials(vends: bool) -> None:
    can = Capabilities(0, None, listing_has_locations=True, describe_batch=9, vends=vends)
    backend = planted(dict.fromkeys(tables(*"abcd"), "lance"), can, as_asked)
    described = await describe_tables(backend, tables(*"abcd"), max_in_flight=2, locator=Locator(backend))
    assert described.tables == backend.tables
    assert [operation for operation, _ in backend.calls] == (["describe_table"] * 4 if vends else ["describe_tables"])


@pytest.mark.parametrize("can", [Capabilities(0, None), Capabilities(0, None, describe_batch=2)])
async def test_after_the_time_limit_no_call_is_made(can: Capabilities) -> None:
    ids = tables(*"abcdefgh")
    backend = planted(dict.fromkeys(ids, "lance"), can, as_asked)
    with deadline(-1.0):
        described = await describe_tables(backend, ids, max_in_flight=2)
    assert not backend.calls and list(described.errors) == ids
    assert all("time ended before this table was described" in str(e) for e in described.errors.values())


async def test_what_a_scan_found_before_it_failed_is_kept() -> None:
    can = Capabilities(0, None, paginates=True, listing_has_locations=True)
    backend = planted(dict.fromkeys(tables(*"abcdef"), "lance"), can, fixed(2))
    error = err.ServiceUnavailableError("down")

    def fail(operation: str, subject: Id) -> None:
        if len(backend.calls) == 2:
            raise error

    backend.on_call = fail
    settled: list[int] = []
    described = await describe_tables(backend, tables(*"abcdef"), max_in_flight=2, progress=settled.append)
    assert described.tables == backend.tables and not described.errors and sum(settled) == 6
    assert Counter(operation for operation, _ in backend.calls) == {"scan_tables": 2, "describe_table": 4}


async def test_a_scan_goes_on_while_its_pages_give_more_than_describes_would() -> None:
    names = [f"t{number}" for number in range(40)]
    can = Capabilities(0, None, paginates=True, listing_has_locations=True, page_worth=5)
    dense = planted(dict.fromkeys(tables(*names), "lance"), can, fixed(8))
    await describe_tables(dense, tables(*names), max_in_flight=4)
    assert Counter(operation for operation, _ in dense.calls) == {"scan_tables": 5}
    sparse = planted(dict.fromkeys(tables(*names), "lance"), can, fixed(2))
    ids = tables(*names[::2])
    assert set((await describe_tables(sparse, ids, max_in_flight=4)).tables) == set(ids)
    assert Counter(operation for operation, _ in sparse.calls) == {"scan_tables": 4, "describe_table": 16}


async def test_where_case_is_folded_a_scan_finds_the_names_as_they_were_asked() -> None:
    can = Capabilities(0, None, listing_has_locations=True, folds_case=True)
    backend = planted(dict.fromkeys(tables(*"abcd"), "lance"), can, as_asked)
    described = await describe_tables(backend, tables("A", "b", "C"), max_in_flight=1)
    assert {id: table.id for id, table in described.tables.items()} == {id: id for id in tables("A", "b", "C")}
    assert backend.calls == [("scan_tables", DB)]


async def test_limits_of_scans() -> None:
    backend = MemoryBackend.able(Capabilities(0, None, listing_has_locations=True))
    described = await describe_tables(backend, tables(*"abcdef"), max_in_flight=3)
    assert outcome(described) == dict.fromkeys(tables(*"abcdef"), err.NamespaceNotFoundError)
    assert backend.calls == [("scan_tables", DB)]
    can = Capabilities(0, None, paginates=True, listing_has_locations=True)
    backend = planted(dict.fromkeys(tables(*"abcdef"), "lance"), can, fixed(0, 0, 0, 1))
    assert set((await describe_tables(backend, tables(*"abcdef"), max_in_flight=1)).tables) == set(tables(*"abcdef"))
    assert Counter(operation for operation, _ in backend.calls)["scan_tables"] <= 6


async def test_the_limit_of_concurrent_calls_is_used() -> None:
    backend = planted(dict.fromkeys(tables(*"abcdefgh"), "lance"), Capabilities(0, None), as_asked)
    await describe_tables(backend, tables(*"abcdefgh"), max_in_flight=5)
    assert backend.most_in_flight == 5


async def test_a_fault_of_ours_is_not_an_outcome() -> None:
    backend = planted(dict.fromkeys(tables(*"abc"), "lance"), Capabilities(0, None), as_asked)

    def fail(operation: str, subject: Id) -> None:
        raise ZeroDivisionError

    backend.on_call = fail
    with pytest.raises(ExceptionGroup) as raised:
        await describe_tables(backend, tables(*"abc"), max_in_flight=2)
    assert raised.value.subgroup(ZeroDivisionError) is not None


def test_groups_begin_small_and_are_read_as_they_are_wanted() -> None:
    read: list[int] = []

    def ids() -> Iterator[TableId]:
        for n in itertools.count():
            read.append(n)
            yield TableId(["db", f"t{n}"])

    sizes = [len(group) for group in itertools.islice(groups(ids()), 7)]
    assert sizes == [500, 1000, 2000, 4000, 5000, 5000, 5000] and len(read) == sum(sizes)
    assert list(groups([])) == [] and [*groups([TableId(["a", "b"])])] == [[TableId(["a", "b"])]]


ABLE = Capabilities(0, None, paginates=True, listing_has_locations=True)


def names(count: int) -> list[TableId]:
    return [TableId(["main", "a", f"t{n:04}"]) for n in range(count)]


def pages_asked(server: FakeUnity) -> int:
    return sum(request.startswith("GET tables?") for request in list_requests(server))


async def streamed(ns: AsyncNamespace, ids: list[TableId]) -> list[TableId]:
    """Returns the tables that were found, and checks the order."""
    result = [it async for it in ns.stream_tables(ids)]
    assert [id for id, _ in result] == ids
    return [id for id, became in result if not isinstance(became, err.LanceNamespaceError)]


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
        assert (len(list_requests(server)) - pages_asked(server)) == 40 and pages_asked(server) <= 3 * 40


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
    backend.add_other_table(ids)
    places: ListingPositions = {}
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
    backend.add_other_table(ids)
    places: ListingPositions = {}
    await describe_tables(backend, ids[:20], max_in_flight=1, places=places)
    backend.faults["scan_tables", DB] = err.PermissionDeniedError("Permission denied: no such page token")
    (await describe_tables(backend, ids[20:], max_in_flight=1, places=places)).raise_for_errors()
    assert places == {}


async def test_no_more_is_remembered_than_one_group_has_namespaces() -> None:
    backend = MemoryBackend.able(ABLE, fixed(2))
    places: ListingPositions = {}
    for n in range(50):
        ids = [TableId([f"db{n}", f"t{i}"]) for i in range(4)]
        backend.add_other_table(ids)
        (await describe_tables(backend, ids, max_in_flight=1, places=places)).raise_for_errors()
        assert len(places) == 1


async def test_a_directory_is_not_walked_for_a_few_of_its_tables(tmp_path: Path) -> None:
    ids = [TableId([f"t{n:04}"]) for n in range(5000)]
    for id in ids:
        (tmp_path / f"{id.name}.lance").mkdir()
        (tmp_path / f"{id.name}.lance" / ".lance-reserved").touch()
    calls: Counter[str] = Counter()
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        with ns.observe(lambda call: calls.update([call.operation])):
            assert await streamed(ns, ids[:1000]) == ids[:1000]
    assert calls == {"scan_tables": 1, "describe_table": 500}


@given(
    st.lists(st.lists(st.sampled_from([DB.table(name) for name in "abcdefghijklmnop"]), max_size=16), max_size=8),
    st.sets(st.sampled_from([DB.table(name) for name in "abcdefghijklmnop"])),
    st.integers(1, 6),
    st.integers(1, 2),
)
async def test_groups_change_no_result(groups: list[list[TableId]], there: set[TableId], size: int, worth: int) -> None:
    backend = MemoryBackend.able(Capabilities(0, None, True, True, True, worth), fixed(size))
    backend.plant_namespace(DB)
    backend.add_other_table(sorted(there))
    places: ListingPositions = {}
    for group in groups:
        described = await describe_tables(backend, group, max_in_flight=2, places=places)
        assert described.tables == {id: backend.tables[id] for id in group if id in there}
        assert {type(e) for e in described.errors.values()} <= {err.TableNotFoundError}
        assert set(described.errors) == set(group) - there
