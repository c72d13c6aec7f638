"""Listings contain Lance tables only, in any mixture of formats, and independent of failures of other namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import lance_namespace.errors as err
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.engine.list import Listed, Lister
from lance_ns_async.errors import failure_of
from lance_ns_async.model import Id, NamespaceId
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.memory import MemoryBackend, Size, as_asked, fixed

DB, OTHER = NamespaceId(["db"]), NamespaceId(["other"])
CATALOGS = st.builds(
    Capabilities,
    st.just(0),
    st.none(),
    paginates=st.booleans(),
    lists_only_lance=st.booleans(),
    listing_has_locations=st.booleans(),
    describe_batch=st.sampled_from([0, 3]),
)
SIZES: st.SearchStrategy[Size] = st.one_of(
    st.just(as_asked), st.builds(lambda sizes: fixed(*sizes, 2), st.lists(st.integers(0, 3)))
)
NAMES = st.lists(st.text("abcxyz", min_size=1, max_size=3), unique=True, max_size=12)


def lister(backend: MemoryBackend, workers: int = 3) -> Lister:
    return Lister(backend, max_in_flight=workers)


def mixed(can: Capabilities, size: Size, lance: Iterable[str], others: Iterable[str]) -> MemoryBackend:
    backend = MemoryBackend.able(can, size)
    backend.plant_namespace(DB)
    backend.plant(DB.table(name) for name in lance)
    backend.plant_others(DB.table(name) for name in others)
    return backend


@given(CATALOGS, SIZES, NAMES, st.lists(st.integers(1, 5), min_size=1))
async def test_pages_hold_only_lance_tables(can: Capabilities, size: Size, names: list[str], limits: list[int]) -> None:
    half = len(names) // 2
    backend = mixed(can, size, names[:half], names[half:])
    result: list[str] = []
    token: str | None = None
    for turn in range(100):
        page = await lister(backend).page(DB, limits[turn % len(limits)], token)
        result += page.items
        if (token := page.token) is None:
            break
    assert len(result) == len(set(result)) and set(result) == set(names[:half])
    assert can.paginates or result == sorted(result)


@given(CATALOGS, SIZES, NAMES)
async def test_tables_are_described_where_that_is_free(can: Capabilities, size: Size, names: list[str]) -> None:
    half = len(names) // 2
    backend = mixed(can, size, names[:half], names[half:])
    listing = lister(backend)
    expected = {DB.table(name) for name in names[:half]}
    result = await listing.everything(DB)
    assert set(result) == expected and len(result) == len(expected)
    free = can.listing_has_locations or not can.lists_only_lance
    assert listing.descriptions == ({id: backend.tables[id] for id in expected} if free else {})
    if can.listing_has_locations:
        assert {operation for operation, _ in backend.calls} == {"scan_tables"}


async def test_a_table_that_goes_while_it_is_looked_at_is_not_in_the_listing() -> None:
    backend = mixed(Capabilities(0, None, lists_only_lance=False), as_asked, "abc", "x")

    def drop(operation: str, subject: Id) -> None:
        if operation == "describe_table":
            backend.tables.pop(DB.table("b"), None)

    backend.on_call = drop
    assert (await lister(backend).page(DB, None, None)).items == ["a", "c"]


async def test_what_may_be_a_lance_table_is_not_left_out_in_silence() -> None:
    backend = mixed(Capabilities(0, None, lists_only_lance=False), as_asked, "abc", "x")
    backend.faults["describe_table", DB.table("b")] = err.PermissionDeniedError("Permission denied: db$b")
    with pytest.raises(err.PermissionDeniedError):
        await lister(backend).page(DB, None, None)
    # The page before it is still available.
    page = await lister(backend).page(DB, 1, None)
    assert list(page.items) == ["a"] and page.token is not None


async def test_one_format_alone_costs_no_describe() -> None:
    backend = mixed(Capabilities(0, None), as_asked, "abc", "")
    await lister(backend).page(DB, None, None)
    assert backend.calls == [("list_tables", DB)]


async def test_a_namespace_that_fails_spoils_no_other() -> None:
    backend = mixed(Capabilities(0, None), as_asked, "ab", "")
    down, gone = NamespaceId(["down"]), NamespaceId(["gone"])
    backend.plant([down.table("t")])
    error = err.ServiceUnavailableError("down")
    backend.faults["list_tables", down] = error
    listed = await lister(backend).many([DB, down, gone, DB])
    assert listed.tables == {DB: [DB.table("a"), DB.table("b")]}
    assert listed.errors[down] is error and isinstance(listed.errors[gone], err.NamespaceNotFoundError)
    assert [subject for _, subject in backend.calls].count(DB) == 1
    with pytest.raises(err.ServiceUnavailableError):
        listed.raise_for_errors()
    done = Listed({DB: []})
    assert done.raise_for_errors() is done


async def test_listings_of_many_namespaces_run_side_by_side() -> None:
    backend = MemoryBackend.able(Capabilities(0, None))
    namespaces = [NamespaceId([name]) for name in "abcdefgh"]
    for namespace in namespaces:
        backend.plant([namespace.table("t")])
    listed = await lister(backend, workers=4).many(namespaces)
    assert set(listed.tables) == set(namespaces) and backend.most_in_flight == 4


@pytest.mark.parametrize("has_locations", [True, False])
async def test_a_listing_that_does_not_end_is_an_error_of_its_namespace_alone(has_locations: bool) -> None:
    backend = mixed(Capabilities(0, None, paginates=True, listing_has_locations=has_locations), as_asked, "ab", "")
    backend.plant([OTHER.table("t")])
    backend.endless.add(OTHER)
    listed = await lister(backend).many([OTHER, DB])
    assert set(listed.tables) == {DB}
    assert isinstance(listed.errors[OTHER], err.InternalError) and "does not end" in str(listed.errors[OTHER])


@pytest.mark.parametrize("operation", ["describe", "vend", "open"])
async def test_errors_that_are_kept_hold_no_frames(tmp_path: Path, operation: str) -> None:
    ids = [("a", "there"), ("a", "gone"), ("a", "lost")]
    with FakeIceberg() as server:
        server.add_table(["a"], "there", location=str(tmp_path / "there"))
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as ns:
            errors: Mapping[TableId, err.LanceNamespaceError]
            if operation == "open":
                errors = (await ns.open_many(ids)).errors
                # Nothing was written to it.
                assert len(errors) == 3
            else:
                described = await ns.describe_tables(ids, vend_credentials=operation == "vend")
                errors = described.errors
                assert len(described.tables) == 1 and len(errors) == 2
    for error in errors.values():
        assert isinstance(error, err.TableNotFoundError)
        assert operation == "open" or failure_of(error) is not None
        known: BaseException | None = error
        while known is not None:
            assert known.__traceback__ is None
            known = known.__cause__ or known.__context__
