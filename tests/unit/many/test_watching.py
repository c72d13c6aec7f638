"""Looks of a watch, compared with a model of what happened between them."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError, PermissionDeniedError

from lance_ns_async import AsyncNamespace, Change, ChangeKind, TableId
from lance_ns_async.calls.observers import Call
from lance_ns_async.many.changes import CatalogState, SeenTable
from lance_ns_async.many.watching import Watch
from tests.fakes.iceberg import FakeIceberg
from tests.support.budget import examples

ROWS = pa.table({"id": [1]})
NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES),
        st.tuples(st.just("drop"), NAMES),
        st.tuples(st.just("foreign"), NAMES),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("look"), st.sampled_from([0.25, 1.0])),
        st.tuples(st.just("resume"), st.integers(0, 8)),
    ),
    max_size=24,
)
View = dict[TableId, str]


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        server.add_namespace(["s"])
        yield server


@pytest.fixture
async def ns(server: FakeIceberg) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, "max_retries": "0"}) as opened:
        yield opened


def apply(view: View, change: Change) -> View:
    """Returns what is known after a change, and checks that it fits to what was known before."""
    view, id = dict(view), TableId(change.id)
    match change.kind:
        case ChangeKind.CREATED:
            assert id not in view and change.location
            view[id] = change.location
        case ChangeKind.DROPPED:
            assert view.pop(id) == change.location
        case ChangeKind.RENAMED:
            assert change.old_id is not None and id not in view
            assert view.pop(change.old_id) == change.location
            view[id] = change.location
        case ChangeKind.REPLACED:
            assert view[id] != change.location and change.location
            view[id] = change.location
        case _:
            raise AssertionError(change)
    return view


class History:
    """Changes a catalog, watches it, and compares the two."""

    def __init__(self, ns: AsyncNamespace, parent: str) -> None:
        self.ns = ns
        self.parent = parent
        self.numbers = itertools.count()
        self.actual: View = {}
        self.foreign: set[TableId] = set()
        self.view: View = {}
        self.tokens: list[tuple[str, View]] = []
        self.watch = self._open()

    def _open(self) -> Watch:
        return Watch(self.ns.session, f"{self.parent}.**", versions=False)

    async def step(self, server: FakeIceberg, what: str, *values: Any) -> None:
        ids = [TableId([self.parent, it]) for it in values if isinstance(it, str)]
        match what:
            case "create" if ids[0] not in self.actual.keys() | self.foreign:
                self.actual[ids[0]] = f"s3://bucket/{next(self.numbers)}"
                await self.ns.declare_table(list(ids[0]), location=self.actual[ids[0]])
            case "foreign" if ids[0] not in self.actual.keys() | self.foreign:
                self.foreign.add(ids[0])
                server.add_table([self.parent], ids[0].name, properties={}, location="s3://bucket/other")
            case "drop" if ids[0] in self.actual:
                del self.actual[ids[0]]
                await self.ns.deregister_table(list(ids[0]))
            case "rename" if ids[0] in self.actual and ids[1] not in self.actual.keys() | self.foreign:
                self.actual[ids[1]] = self.actual.pop(ids[0])
                await self.ns.rename_table(list(ids[0]), new_table_name=ids[1].name)
            case "look":
                await self.look(*values)
            case "resume" if self.tokens:
                token, self.view = self.tokens[min(values[0], len(self.tokens) - 1)]
                self.watch = self._open()
                self.watch.resume(token)
                await self.look(1.0)

    async def look(self, share: float) -> None:
        for change in await self.watch.look(share):
            self.view = apply(self.view, change)
            self.tokens.append((change.token, self.view))
        if share == 1.0:
            assert self.view == self.actual
        else:
            # Only that another table has a known id is seen later, when it is its turn.
            assert self.view.keys() - self.foreign == self.actual.keys()


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
async def test_a_watch_sees_what_happens_and_invents_nothing(steps: list[tuple[Any, ...]]) -> None:
    with FakeIceberg() as server:
        server.add_namespace(["s"])
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, "max_retries": "0"}) as ns:
            history = History(ns, "s")
            for step in [*steps, ("look", 1.0)]:
                await history.step(server, *step)


async def test_each_table_is_examined_once_in_a_round(ns: AsyncNamespace, server: FakeIceberg) -> None:
    names = server.add_lance_tables(["s"], 20)
    server.add_table(["s"], "foreign", properties={}, location="s3://bucket/other")
    watch = Watch(ns.session, "s.*", versions=False)
    assert len(await watch.begin()) == 20
    described: list[str] = []

    def note(call: Call) -> None:
        if call.operation == "describe_table":
            described.append(call.subject[-1])

    with ns.observe(note):
        for _ in range(4):
            assert await watch.look(0.25) == []
    assert sorted(described) == sorted([*names, *["foreign"] * 4])


async def test_what_cannot_be_read_is_told_once_and_its_changes_later(ns: AsyncNamespace, server: FakeIceberg) -> None:
    for parent in ("s", "r"):
        server.add_namespace([parent])
        await ns.declare_table([parent, "t"], location=f"s3://bucket/{parent}")
    watch = Watch(ns.session, "**", versions=False)
    await watch.begin()
    await ns.deregister_table(["s", "t"])
    await ns.deregister_table(["r", "t"])
    server.fail(403, times=None, match="GET .*/namespaces/s/tables")
    told = sorted(await watch.look(), key=str)
    assert [(it.kind, str(it.id)) for it in told] == [(ChangeKind.DROPPED, "r$t"), (ChangeKind.UNREADABLE, "s")]
    assert isinstance(told[1].error, PermissionDeniedError) and told[1].to_dict()["error"]["kind"] == "denied"
    assert str(told[1]).startswith("unreadable  s  denied: ") and await watch.look() == []
    # A token of this time has the table, too.
    again = Watch(ns.session, "**", versions=False)
    again.resume(told[1].token)
    server.heal()
    for it in (watch, again):
        assert [(change.kind, str(change.id)) for change in await it.look()] == [(ChangeKind.DROPPED, "s$t")]
    server.fail(403, times=None, match="GET .*/namespaces/s/tables")
    assert [it.kind for it in await watch.look()] == [ChangeKind.UNREADABLE]


async def test_a_table_and_a_namespace_of_one_name_are_two_things(ns: AsyncNamespace, server: FakeIceberg) -> None:
    server.add_table(["s"], "x")
    server.add_table(["s", "x"], "t")
    watch = Watch(ns.session, "s.**", versions=False)
    await watch.begin()
    server.fail(403, times=None, match=r"GET .*/namespaces/s/tables/x(\?|$)")
    await ns.deregister_table(["s", "x", "t"])
    assert [(it.kind, it.id) for it in await watch.look()] == [
        (ChangeKind.DROPPED, TableId("s$x$t")),
        (ChangeKind.UNREADABLE, TableId("s$x")),
    ]
    assert await watch.look() == []
    server.heal()
    assert await watch.look() == []
    server.fail(403, times=None, match=r"GET .*/namespaces/s/tables/x(\?|$)")
    assert [it.kind for it in await watch.look()] == [ChangeKind.UNREADABLE]


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_version_that_cannot_be_read_is_told_once(tmp_path: Path, is_broken: bool) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace(["s"])
        await ns.write(["s", "t"], ROWS)
        await ns.declare_table(["s", "u"])
        watch = Watch(ns.session, "s.*", versions=True)
        await watch.begin()
        versions = f"{(await ns.describe_tables(['s.t']))['s.t'].location.removeprefix('file://')}/_versions"
        os.rename(versions, tmp_path / "moved")
        if is_broken:
            os.symlink(versions, versions)
        told = [change for _ in range(4) for change in await watch.look(0.5)]
        assert [(it.kind, it.id) for it in told] == [(ChangeKind.UNREADABLE, TableId("s$t"))]
        assert is_broken or "it had version 1, and has none now" in str(told[0])
        if is_broken:
            os.unlink(versions)
        os.rename(tmp_path / "moved", versions)
        await ns.write(["s", "t"], ROWS, mode="append")
        seen = [change for _ in range(2) for change in await watch.look(0.5)]
        assert [(it.kind, it.version) for it in seen] == [(ChangeKind.VERSION, 2)]


@pytest.mark.parametrize("is_left", [False, True])
async def test_a_directory_that_is_not_mounted_has_dropped_nothing(tmp_path: Path, is_left: bool) -> None:
    lake = tmp_path / "lake"
    async with AsyncNamespace.connect("dir", {"root": str(lake)}) as ns:
        await ns.create_namespace(["s"])
        await ns.write(["s", "t"], ROWS)
        await ns.write(["u"], ROWS)
        watch = Watch(ns.session, "**", versions=True)
        await watch.begin()
        os.rename(lake, tmp_path / "away")
        if is_left:
            os.mkdir(lake)
        told = await watch.look()
        assert [(it.kind, str(it.id)) for it in told] == [(ChangeKind.UNREADABLE, "$")]
        assert str(told[0]).endswith("Service unavailable: the storage of the catalog itself is gone")
        assert await watch.look() == []
        if is_left:
            os.rmdir(lake)
        os.rename(tmp_path / "away", lake)
        await ns.drop_table(["s", "t"])
        await ns.drop_table(["u"])
        assert {it.kind for it in await watch.look()} == {ChangeKind.DROPPED}


async def test_a_watch_begins_only_if_everything_can_be_read(ns: AsyncNamespace, server: FakeIceberg) -> None:
    server.fail(403, times=2, match="GET .*/namespaces/s/tables")
    with pytest.raises(PermissionDeniedError):
        await ns.watch_token("s.**")
    with pytest.raises(PermissionDeniedError):
        [change async for change in ns.watch("s.**", every=None)]
    assert await ns.watch_token("s.**")


async def test_versions_are_of_the_storage(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as ns:
        await ns.declare_table(["t"])
        folder = tmp_path / "lake/t.lance"
        token = await ns.watch_token("t")

        async def look() -> Change:
            nonlocal token
            (change,) = [it async for it in ns.watch("t", since=token, every=None)]
            token = change.token
            return change

        lance.write_dataset(ROWS, folder)
        expected = {"change": "version", "id": ["t"], "version": 1}
        assert (change := await look()).to_dict() == {**expected, "location": change.location}
        lance.write_dataset(ROWS, folder, mode="append")
        lance.write_dataset(ROWS, folder, mode="append")
        assert str(change := await look()) == "version     t  version 3" and change.old_version == 1
        # Another tool writes the table anew at the same place.
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        lance.write_dataset(ROWS, folder)
        assert ((change := await look()).kind, change.version) == (ChangeKind.REPLACED, 1)
        assert await Watch(ns.session, "t", versions=False).begin()


async def test_a_watch_goes_on_until_it_is_left(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        seen: list[str] = []

        async def follow() -> None:
            async for change in ns.watch("**", existing=True, every=0.001, examine_every=0.002):
                seen.append(f"{change.kind} {change.id}")
                await ns.deregister_table(list(change.id)) if change.kind == "created" else None
                if len(seen) == 4:
                    return

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(follow())
            for name in ("a", "b"):
                await ns.declare_table([name])
        assert sorted(seen) == ["created a", "created b", "dropped a", "dropped b"]


async def test_arguments_and_tokens_are_checked(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        tables = {TableId(f"t{number}"): SeenTable(f"file:///{number}", None, number) for number in range(200)}
        state = CatalogState([ns.session.catalog, "**"], tables)
        assert CatalogState.read(state.token(), state.of) == CatalogState.read(state.token() + "\n", state.of) == state
        plain = state.token().replace("-", "+").replace("_", "/")

        async def error(**arguments: Any) -> str:
            with pytest.raises(InvalidInputError) as caught:
                [change async for change in ns.watch("**", **arguments)]
            return str(caught.value)

        for token in ("", "x", "é", state.token()[:-8], state.token()[8:], plain, "eJwDAAAAAAE="):
            message = "since: it is not the token of a change, or was cut off; begin anew without it"
            assert await error(since=token) == message
        of_others = CatalogState([ns.session.catalog, "s.*"]).token()
        assert "it is the token of a watch of s.* in lance_ns_async:dir:" in await error(since=of_others)
        assert "must be numbers of seconds above 0" in await error(every=0)
        assert "must be numbers of seconds above 0" in await error(examine_every=-1.0)
