"""Tables that are created while other clients create, write or drop them: acknowledged changes stay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import anyio
import anyio.to_thread
import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from lance_ns_async import AsyncNamespace, Namespace, TableId, registry
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.model import Table, is_same
from tests.contract.conftest import Parent
from tests.contract.site import Site
from tests.fakes.memory import over
from tests.support.budget import with_usual
from tests.support.errors import catch
from tests.support.lake import stream

OURS, THEIRS, BAD = pa.table({"id": [1, 2]}), pa.table({"id": [7, 8, 9]}), pa.table({"a.b": [1]})

Meddle = Callable[[TableId], Awaitable[object]]


class Meddled(Backend):
    """A mixin for backends that performs an operation of another client between the calls, once."""

    meddles: dict[str, Meddle]
    """The other client's operations, each after a table was declared, described or deregistered."""

    async def _meddle(self, when: str, id: TableId) -> None:
        if (meddle := self.meddles.pop(when, None)) is not None:
            await meddle(id)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        made = await super().declare_table(id, location, properties, schema)  # type: ignore[safe-super]
        await self._meddle("declared", id)
        return made

    async def deregister_table(self, id: TableId, expected: Table | None = None) -> Table:
        table = await super().deregister_table(id, expected)
        await self._meddle("deregistered", id)
        return table

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        result = await super().describe_table(id, vend=vend)  # type: ignore[safe-super]
        await self._meddle("described", id)
        return result


@dataclass
class Two:
    """Two namespaces of one catalog with separate connections: one with a `Meddled` backend, and another."""

    ours: AsyncNamespace
    backend: Meddled
    theirs: AsyncNamespace
    id: list[str]

    async def rows(self) -> list[int]:
        """Returns the rows that a third client finds by the table's name."""
        result = await self.theirs.describe_table({"id": self.id})
        ids: list[int] = lance.dataset(result.location).to_table()["id"].to_pylist()
        return ids


@pytest.fixture
async def two(site: Site, parent: Parent) -> AsyncIterator[Two]:
    if site.served:
        pytest.skip("what is behind the gateway is tested by itself")
    kind = registry.load(site.impl)
    caller = Caller(Policy(), kind.errors)
    meddled: type[Meddled] = type("MeddledBackend", (Meddled, kind), {})
    backend = meddled.open(kind.settings.parse(site.properties), caller)
    backend.meddles = {}
    async with AsyncNamespace.connect(site.impl, site.properties) as theirs, over(backend, caller, id="") as ours:
        yield Two(ours, backend, theirs, parent.table("t"))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    with_usual(
        [*product(("create", "overwrite"), ("overwrite", "append"))], ("create", "overwrite"), ("overwrite", "append")
    ),
)
async def test_a_declared_table_stays_if_others_write_to_it(two: Two, ours: Any, theirs: Any) -> None:
    two.backend.meddles["declared"] = lambda id: two.theirs.write(id, THEIRS, mode=theirs)
    if ours == "create":
        await catch(err.TableAlreadyExistsError, two.ours.write(two.id, OURS, mode=ours))
        assert await two.rows() == [7, 8, 9]
    else:
        made = await two.ours.write(two.id, OURS, mode=ours)
        assert made.version == 2 and await two.rows() == [1, 2]
        assert made.checkout_version(1).to_table() == THEIRS


async def test_a_create_that_fails_leaves_what_others_wrote_meanwhile(two: Two) -> None:
    two.backend.meddles["declared"] = lambda id: two.theirs.write(id, THEIRS, mode="append")
    await catch(err.LanceNamespaceError, two.ours.write(two.id, BAD))
    assert await two.rows() == [7, 8, 9]


async def test_a_create_that_fails_leaves_what_others_declared_meanwhile(two: Two) -> None:
    async def meddle(id: TableId) -> None:
        await two.theirs.deregister_table({"id": list(id)})
        await two.theirs.declare_table({"id": list(id)})

    two.backend.meddles["declared"] = meddle
    await catch(err.LanceNamespaceError, two.ours.write(two.id, BAD))
    assert await two.theirs.exists(two.id)


@pytest.mark.parametrize("operation", ["write", "declare"])
async def test_an_interrupt_during_the_declaration_leaves_no_registration(two: Two, operation: str) -> None:
    async def meddle(id: TableId) -> None:
        # The catalog has registered the table, and its response does not arrive any more.
        raise KeyboardInterrupt

    two.backend.meddles["declared"] = meddle
    with pytest.raises(KeyboardInterrupt) as caught:
        await (two.ours.write(two.id, OURS) if operation == "write" else two.ours.declare_table({"id": two.id}))
    if await two.backend.new_location(TableId(two.id)) is None:
        assert await two.theirs.exists(two.id)
        assert "perhaps by this call; deregister_table removes it" in caught.value.__notes__[0]
    else:
        assert not await two.theirs.exists(two.id)


async def test_a_create_that_fails_by_itself_leaves_nothing(two: Two) -> None:
    await catch(err.LanceNamespaceError, two.ours.write(two.id, BAD))
    assert not await two.theirs.exists(two.id)
    await two.theirs.write(two.id, OURS)
    assert await two.rows() == [1, 2]


def rows_after(site: Site, change: Callable[[Namespace], object]) -> pa.RecordBatchReader:
    """Returns rows that are read after another client has made a change."""

    def batches() -> Iterator[pa.RecordBatch]:
        with Namespace.connect(site.impl, site.properties) as other:
            change(other)
        yield from OURS.to_batches()

    return pa.RecordBatchReader.from_batches(OURS.schema, batches())


@pytest.mark.parametrize("mode", ["create", "append"])
async def test_first_rows_of_a_table_deregistered_meanwhile_stay(two: Two, site: Site, mode: Any) -> None:
    """They were acknowledged, and a new table of that name has another location."""
    if mode == "append":
        await two.theirs.declare_table({"id": two.id})
    rows = rows_after(site, lambda other: other.deregister_table({"id": two.id}))
    written = await two.ours.write(two.id, rows, mode=mode)
    assert not await two.theirs.exists(two.id)
    await two.theirs.write(two.id, THEIRS)
    assert await two.rows() == [7, 8, 9]
    assert written.to_table() == OURS


async def test_a_table_made_again_during_a_first_write_stays(two: Two, site: Site) -> None:
    await two.theirs.declare_table({"id": two.id})

    def change(other: Namespace) -> None:
        other.drop_table({"id": two.id})
        other.write(two.id, THEIRS)

    await two.ours.write(two.id, rows_after(site, change), mode="append")
    assert await two.rows() == [7, 8, 9]


async def cut_off(two: Two) -> str:
    """Begins a drop that ends when the registration is removed; returns the location of the data."""
    if two.backend.capabilities.drops:
        pytest.skip("the catalog itself deletes the data")
    await two.theirs.write(two.id, OURS)
    place = str((await two.theirs.describe_table({"id": two.id})).location)

    async def meddle(id: TableId) -> None:
        raise err.ServiceUnavailableError("cut off")

    two.backend.meddles["deregistered"] = meddle
    await catch(err.ServiceUnavailableError, two.ours.drop_table({"id": two.id}), "cut off")
    return place


async def test_the_name_of_a_drop_that_was_cut_off_is_free(two: Two) -> None:
    place = await cut_off(two)
    assert not await two.theirs.exists(two.id)
    await two.ours.write(two.id, THEIRS)
    assert await two.rows() == [7, 8, 9]
    assert lance.dataset(place).to_table() == OURS


@pytest.mark.parametrize(
    ("where", "how", "then"),
    with_usual(
        [*product(("beside", "elsewhere"), ("register", "overwrite", "declare"), ("create", "drop"))],
        ("beside", "register", "create"),
        ("beside", "declare", "drop"),
        ("elsewhere", "overwrite", "drop"),
    ),
)
async def test_data_registered_after_a_drop_was_cut_off_stays(
    two: Two, site: Site, parent: Parent, how: str, where: str, then: str
) -> None:
    if not site.frees_locations:
        pytest.skip("the location of the data stays taken")
    place = await cut_off(two)
    other = parent.table("u")
    if where == "elsewhere":
        namespace = [*site.above, f"{parent.id.name}_{how}_{then}"]
        await two.theirs.create_namespace({"id": namespace})
        other = [*namespace, "u"]
    if how == "declare":
        await two.theirs.declare_table({"id": other, "location": place})
    else:
        await two.theirs.register_table({"id": other, "location": place, "mode": how.replace("register", "create")})
    if then == "create":
        await two.ours.write(two.id, THEIRS)
        await two.ours.drop_table({"id": two.id})
    else:
        await catch(err.TableNotFoundError, two.ours.drop_table({"id": two.id}))
    assert (await two.theirs.open(other)).to_table() == OURS


async def test_an_append_during_a_drop_leaves_no_name_stuck(two: Two) -> None:
    await two.theirs.write(two.id, OURS)
    opened = await two.theirs.open(two.id)

    two.backend.meddles["deregistered"] = lambda id: anyio.to_thread.run_sync(opened.insert, THEIRS)
    if two.backend.capabilities.drops:
        pytest.skip("the catalog itself deletes the data")
    await two.ours.drop_table({"id": two.id})
    await two.ours.write(two.id, OURS)
    assert await two.rows() == [1, 2]


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "made-again"])
async def test_files_missed_because_of_a_drop_get_the_right_error(two: Two, again: bool) -> None:
    await two.theirs.write(two.id, OURS)
    old = await two.backend.describe_table(TableId(two.id))

    async def meddle(id: TableId) -> None:
        await two.theirs.drop_table({"id": list(id)})
        if again:
            await two.theirs.write(id, THEIRS)

    two.backend.meddles["described"] = meddle
    caught = await catch(err.LanceNamespaceError, two.ours.open(two.id, version=2))
    expected: type[err.LanceNamespaceError] = err.TableNotFoundError
    if again:
        same = is_same(old, await two.backend.describe_table(TableId(two.id)))
        expected = err.TableVersionNotFoundError if same else err.ConcurrentModificationError
    assert type(caught.value) is expected, caught.value


async def test_files_that_are_still_there_are_not_reported_as_missing(two: Two) -> None:
    await two.theirs.write(two.id, OURS)
    place = (await two.theirs.describe_table({"id": two.id})).location

    two.backend.meddles["described"] = lambda id: two.theirs.deregister_table({"id": list(id)})
    with pytest.raises(err.TableNotFoundError, match=r"work on its files at .* failed, and it was dropped, renamed or"):
        await two.ours.open(two.id, version=2)
    if not two.backend.capabilities.drops:
        assert lance.dataset(place).to_table() == OURS


async def test_a_table_that_is_replaced_is_never_missing(two: Two) -> None:
    """A reader that polls finds the old registration or the new one, each with its own properties."""
    first = await two.theirs.declare_table({"id": two.id, "properties": {"k": "0"}})
    over = anyio.Event()
    values: list[str] = []

    async def read() -> None:
        while not over.is_set():
            result = await two.theirs.describe_table({"id": two.id})
            values.append((result.properties or {})["k"])

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        try:
            for number in range(1, 11):
                await two.ours.register_table(
                    {"id": two.id, "location": first.location, "mode": "Overwrite", "properties": {"k": str(number)}}
                )
        except err.UnsupportedOperationError as e:
            assert number == 1 and "deregister it" in str(e)
            last = "0"
        else:
            last = "10"
        over.set()
    assert values == sorted(values, key=int)
    result = await two.theirs.describe_table({"id": two.id})
    assert (result.location, (result.properties or {})["k"]) == (first.location, last)
    assert (await two.theirs.list_tables({"id": two.id[:-1]})).tables == ["t"]


async def test_an_overwrite_that_fails_leaves_the_properties(two: Two) -> None:
    await two.ours.create_table({"id": two.id, "properties": {"k": "old"}}, stream(OURS))
    with pytest.raises(err.LanceNamespaceError):
        await two.ours.create_table({"id": two.id, "mode": "Overwrite", "properties": {"k": "new"}}, stream(BAD))
    result = await two.theirs.describe_table({"id": two.id})
    assert (result.properties or {})["k"] == "old" and await two.rows() == [1, 2]
    try:
        await two.ours.create_table({"id": two.id, "mode": "Overwrite", "properties": {"k": "new"}}, stream(THEIRS))
    except err.UnsupportedOperationError as e:
        assert "omit the properties" in str(e) or "deregister it" in str(e)
        assert await two.rows() == [1, 2]
        await two.ours.create_table({"id": two.id, "mode": "Overwrite"}, stream(THEIRS))
        assert await two.rows() == [7, 8, 9]
        return
    result = await two.theirs.describe_table({"id": two.id})
    assert (result.properties or {})["k"] == "new" and await two.rows() == [7, 8, 9]


LOST, ROWS = pa.table({"id": [1, 2]}), pa.table({"id": [7, 8, 9]})


@pytest.fixture
async def killed(ns: AsyncNamespace, parent: Parent) -> list[str]:
    """A declared table with data files that belong to no version."""
    id = parent.table("t")
    location = (await ns.declare_table({"id": id})).location
    assert location is not None
    write_fragments(LOST, location, mode="create")
    return id


async def test_the_table_is_there_and_has_no_rows(ns: AsyncNamespace, parent: Parent, killed: list[str]) -> None:
    assert (await ns.list_tables({"id": list(parent.id)})).tables == ["t"]
    assert await ns.exists(killed)
    assert (await ns.describe_table({"id": killed})).location
    with pytest.raises(err.TableNotFoundError, match="there is no version: nothing was written, or the data"):
        await ns.count_table_rows({"id": killed})
    with pytest.raises(err.TableNotFoundError, match="there is no version: nothing was written, or the data"):
        await ns.open(killed)
    await catch(err.TableAlreadyExistsError, ns.write(killed, ROWS))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
async def test_the_rows_are_written_again(ns: AsyncNamespace, killed: list[str], mode: Any) -> None:
    written = await ns.write(killed, ROWS, mode=mode)
    assert (written.version, written.to_table()) == (1, ROWS)


async def test_the_name_is_free_after_a_drop(ns: AsyncNamespace, killed: list[str]) -> None:
    await ns.drop_table({"id": killed})
    assert not await ns.exists(killed)
    written = await ns.write(killed, ROWS)
    assert lance.dataset(written.uri).to_table() == ROWS
