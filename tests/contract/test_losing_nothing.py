"""Tables that are created while other clients create, write or drop them: acknowledged changes stay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileSession
from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableVersionNotFoundError,
)

from lance_ns_async import AsyncNamespace, Namespace, TableId, registry
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.policy import Caller, Policy
from lance_ns_async.model import Table, is_same
from tests.contract.conftest import Home
from tests.contract.site import Site
from tests.support.lake import stream

OURS, THEIRS, BAD = pa.table({"id": [1, 2]}), pa.table({"id": [7, 8, 9]}), pa.table({"a.b": [1]})

Meddle = Callable[[TableId], Awaitable[None]]


class Meddled(Backend):
    """A mixin for backends that performs an operation of another client between the calls, once."""

    meddle: Meddle | None = None
    """The other client's operation after a table was declared."""
    before: Meddle | None = None
    """The other client's operation before a table is described."""
    after: Meddle | None = None
    """The other client's operation after a table was described."""
    removed: Meddle | None = None
    """The other client's operation after a table was deregistered."""

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        made = await super().declare_table(id, location, properties, schema)  # type: ignore[safe-super]
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            await meddle(id)
        return made

    async def deregister_table(self, id: TableId) -> None:
        await super().deregister_table(id)  # type: ignore[safe-super]
        meddle, self.removed = self.removed, None
        if meddle is not None:
            await meddle(id)

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        before, self.before = self.before, None
        if before is not None:
            await before(id)
        found = await super().describe_table(id, vend=vend)  # type: ignore[safe-super]
        after, self.after = self.after, None
        if after is not None:
            await after(id)
        return found


@dataclass
class Two:
    """Two namespaces of one catalog with separate connections: one with a `Meddled` backend, and another."""

    ours: AsyncNamespace
    backend: Meddled
    theirs: AsyncNamespace
    id: list[str]

    async def rows(self) -> list[int]:
        """Returns the rows that a third client finds by the table's name."""
        found = await self.theirs.describe_table({"id": self.id})
        ids: list[int] = lance.dataset(found.location).to_table()["id"].to_pylist()
        return ids


@pytest.fixture
async def two(site: Site, home: Home) -> AsyncIterator[Two]:
    if site.served:
        pytest.skip("what is behind the gateway is tested by itself")
    kind = registry.load(site.impl)
    caller = Caller(Policy(), kind.errors)
    meddled: type[Meddled] = type("MeddledBackend", (Meddled, kind), {})
    backend = meddled.open(kind.settings.parse(site.properties), caller)
    async with (
        AsyncNamespace.connect(site.impl, site.properties) as theirs,
        AsyncNamespace(backend, caller, "") as ours,
    ):
        yield Two(ours, backend, theirs, home.table("t"))


@pytest.mark.parametrize("theirs", ["overwrite", "append"])
@pytest.mark.parametrize("ours", ["create", "overwrite"])
async def test_a_declared_table_stays_if_others_write_to_it(two: Two, ours: Any, theirs: Any) -> None:
    async def meddle(id: TableId) -> None:
        await two.theirs.write(id, THEIRS, mode=theirs)

    two.backend.meddle = meddle
    if ours == "create":
        with pytest.raises(TableAlreadyExistsError):
            await two.ours.write(two.id, OURS, mode=ours)
        assert await two.rows() == [7, 8, 9]
    else:
        made = await two.ours.write(two.id, OURS, mode=ours)
        assert made.version == 2 and await two.rows() == [1, 2]
        assert made.checkout_version(1).to_table() == THEIRS


async def test_a_create_that_fails_leaves_what_others_wrote_meanwhile(two: Two) -> None:
    async def meddle(id: TableId) -> None:
        await two.theirs.write(id, THEIRS, mode="append")

    two.backend.meddle = meddle
    with pytest.raises(LanceNamespaceError):
        await two.ours.write(two.id, BAD)
    assert await two.rows() == [7, 8, 9]


async def test_a_create_that_fails_leaves_what_others_declared_meanwhile(two: Two) -> None:
    async def meddle(id: TableId) -> None:
        await two.theirs.deregister_table({"id": list(id)})
        await two.theirs.declare_table({"id": list(id)})

    two.backend.meddle = meddle
    with pytest.raises(LanceNamespaceError):
        await two.ours.write(two.id, BAD)
    assert await two.theirs.exists(two.id)


async def test_a_create_that_fails_by_itself_leaves_nothing(two: Two) -> None:
    with pytest.raises(LanceNamespaceError):
        await two.ours.write(two.id, BAD)
    assert not await two.theirs.exists(two.id)
    await two.theirs.write(two.id, OURS)
    assert await two.rows() == [1, 2]


@pytest.mark.parametrize("mode", ["create", "append"])
async def test_rows_of_a_table_dropped_meanwhile_are_not_acknowledged(two: Two, site: Site, mode: Any) -> None:
    """Otherwise nobody could find them, and they would prevent the next table of that name."""
    if mode == "append":
        await two.theirs.declare_table({"id": two.id})

    def batches() -> Iterator[pa.RecordBatch]:
        with Namespace.connect(site.impl, site.properties) as other:
            other.deregister_table({"id": two.id})
        yield from OURS.to_batches()

    with pytest.raises(
        ConcurrentModificationError,
        match=r"it was dropped or deregistered while its first rows were written; .* write them again",
    ):
        await two.ours.write(two.id, pa.RecordBatchReader.from_batches(OURS.schema, batches()), mode=mode)
    assert not await two.theirs.exists(two.id)
    await two.theirs.write(two.id, THEIRS)
    assert await two.rows() == [7, 8, 9]


def then(two: Two, meddle: Meddle) -> pa.RecordBatchReader:
    """Yields rows, and then performs an operation of another client, before the table is looked up again."""

    def batches() -> Iterator[pa.RecordBatch]:
        two.backend.before = meddle
        yield from OURS.to_batches()

    return pa.RecordBatchReader.from_batches(OURS.schema, batches())


@pytest.mark.parametrize(("mode", "theirs"), [("append", THEIRS), ("overwrite", None)], ids=["added-to", "tagged"])
async def test_first_rows_that_others_use_stay_as_the_error_says(
    two: Two, site: Site, mode: Any, theirs: pa.Table | None
) -> None:
    place = (await two.theirs.declare_table({"id": two.id})).location

    async def meddle(id: TableId) -> None:
        if theirs is None:
            await two.theirs.create_table_tag({"id": list(id), "tag": "mine", "version": 1})
        else:
            await two.theirs.write(id, theirs, mode="append")
        await two.theirs.deregister_table({"id": list(id)})

    with pytest.raises(ConcurrentModificationError, match=r"they are still at .*, do not write them again"):
        await two.ours.write(two.id, then(two, meddle), mode=mode)
    if not site.frees_locations:
        return
    await two.theirs.register_table({"id": two.id, "location": place})
    assert await two.rows() == ([1, 2] if theirs is None else [1, 2, 7, 8, 9])


async def test_a_table_of_others_at_the_same_location_stays(two: Two) -> None:
    await two.theirs.declare_table({"id": two.id})

    async def meddle(id: TableId) -> None:
        await two.theirs.drop_table({"id": list(id)})
        await two.theirs.write(id, THEIRS)

    # Some catalogs have nothing that distinguishes the two tables.
    with suppress(ConcurrentModificationError):
        await two.ours.write(two.id, then(two, meddle), mode="append")
    assert await two.rows() == [7, 8, 9]


async def cut_off(two: Two, tmp_path: Path) -> str:
    """Drops a table so that its data is left, with a mark of the removed registration; returns its location."""
    if two.backend.capabilities.drops:
        pytest.skip("its drops leave no marks")
    await two.theirs.write(two.id, OURS)
    place = str((await two.theirs.describe_table({"id": two.id})).location)
    files, broken = LanceFileSession(place), f"_versions/{2**64 - 1 - 2:020}.manifest"
    (tmp_path / "broken").write_bytes(b"no manifest")

    async def meddle(id: TableId) -> None:
        await anyio.to_thread.run_sync(files.upload_file, str(tmp_path / "broken"), broken)

    two.backend.removed = meddle
    with pytest.raises(LanceNamespaceError, match="no longer registered; its remaining data is at"):
        await two.ours.drop_table({"id": two.id})
    await anyio.to_thread.run_sync(files.delete_file, broken)
    return place


async def test_a_drop_that_was_cut_off_is_finished_by_the_next_declaration(two: Two, tmp_path: Path) -> None:
    await cut_off(two, tmp_path)
    await two.ours.write(two.id, THEIRS)
    assert await two.rows() == [7, 8, 9]


@pytest.mark.parametrize("then", ["create", "drop"])
@pytest.mark.parametrize("how", ["register", "overwrite", "declare", "other client"])
@pytest.mark.parametrize("where", ["beside", "elsewhere"])
async def test_data_registered_after_a_drop_was_cut_off_stays(
    two: Two, site: Site, home: Home, how: str, where: str, then: str, tmp_path: Path
) -> None:
    if not site.frees_locations:
        pytest.skip("the location of the data stays taken")
    place = await cut_off(two, tmp_path)
    other = home.table("u")
    if where == "elsewhere":
        if how == "other client":
            pytest.skip("tables of other namespaces are not looked at")
        namespace = [*site.above, f"{home.id.name}_{how}_{then}"]
        await two.theirs.create_namespace({"id": namespace})
        other = [*namespace, "u"]
    if how == "other client":
        await two.backend.declare_table(TableId(other), place, {})
    elif how == "declare":
        await two.theirs.declare_table({"id": other, "location": place})
    else:
        await two.theirs.register_table({"id": other, "location": place, "mode": how.replace("register", "create")})
    if then == "create" and site.chooses_locations:
        await two.ours.write(two.id, THEIRS)
        assert str((await two.theirs.describe_table({"id": two.id})).location) != place
    elif then == "create":
        with pytest.raises(TableAlreadyExistsError, match="there is data"):
            await two.ours.write(two.id, THEIRS)
    else:
        with pytest.raises(TableNotFoundError):
            await two.ours.drop_table({"id": two.id})
    assert (await two.theirs.open(other)).to_table() == OURS


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "made-again"])
async def test_files_missed_because_of_a_drop_get_the_right_error(two: Two, again: bool) -> None:
    await two.theirs.write(two.id, OURS)
    old = await two.backend.describe_table(TableId(two.id))

    async def meddle(id: TableId) -> None:
        await two.theirs.drop_table({"id": list(id)})
        if again:
            await two.theirs.write(id, THEIRS)

    two.backend.after = meddle
    with pytest.raises(LanceNamespaceError) as caught:
        await two.ours.open(two.id, version=2)
    expected: type[LanceNamespaceError] = TableNotFoundError
    if again:
        same = is_same(old, await two.backend.describe_table(TableId(two.id)))
        expected = TableVersionNotFoundError if same else ConcurrentModificationError
    assert type(caught.value) is expected, caught.value


async def test_files_that_are_still_there_are_not_reported_as_missing(two: Two) -> None:
    await two.theirs.write(two.id, OURS)
    place = (await two.theirs.describe_table({"id": two.id})).location

    async def meddle(id: TableId) -> None:
        await two.theirs.deregister_table({"id": list(id)})

    two.backend.after = meddle
    with pytest.raises(TableNotFoundError, match=r"work on its files at .* failed, and it was dropped, renamed or"):
        await two.ours.open(two.id, version=2)
    if not two.backend.capabilities.drops:
        assert lance.dataset(place).to_table() == OURS


async def test_data_at_the_default_place_is_not_registered_by_a_create(two: Two) -> None:
    expected = await two.backend.default_location(TableId(two.id))
    if expected is None:
        pytest.skip("it chooses a new place each time")
    lance.write_dataset(THEIRS, expected)
    for mode in ("create", "overwrite"):
        with pytest.raises(TableAlreadyExistsError, match=r"not in the catalog, but there is data at .*"):
            await two.ours.write(two.id, OURS, mode=mode)
        assert not await two.theirs.exists(two.id)
    assert lance.dataset(expected).to_table() == THEIRS


async def test_a_table_that_is_replaced_is_never_missing(two: Two) -> None:
    """A reader that polls finds the old registration or the new one, each with its own properties."""
    first = await two.theirs.declare_table({"id": two.id, "properties": {"k": "0"}})
    over = anyio.Event()
    seen: list[str] = []

    async def read() -> None:
        while not over.is_set():
            found = await two.theirs.describe_table({"id": two.id})
            seen.append((found.properties or {})["k"])

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        for number in range(1, 11):
            await two.ours.register_table(
                {"id": two.id, "location": first.location, "mode": "Overwrite", "properties": {"k": str(number)}}
            )
        over.set()
    assert seen == sorted(seen, key=int)
    found = await two.theirs.describe_table({"id": two.id})
    assert (found.location, (found.properties or {})["k"]) == (first.location, "10")
    assert (await two.theirs.list_tables({"id": two.id[:-1]})).tables == ["t"]


async def test_an_overwrite_that_fails_leaves_the_properties(two: Two) -> None:
    await two.ours.create_table({"id": two.id, "properties": {"k": "old"}}, stream(OURS))
    with pytest.raises(LanceNamespaceError):
        await two.ours.create_table({"id": two.id, "mode": "Overwrite", "properties": {"k": "new"}}, stream(BAD))
    found = await two.theirs.describe_table({"id": two.id})
    assert (found.properties or {})["k"] == "old" and await two.rows() == [1, 2]
    await two.ours.create_table({"id": two.id, "mode": "Overwrite", "properties": {"k": "new"}}, stream(THEIRS))
    found = await two.theirs.describe_table({"id": two.id})
    assert (found.properties or {})["k"] == "new" and await two.rows() == [7, 8, 9]
