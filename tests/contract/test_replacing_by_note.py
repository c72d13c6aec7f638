"""Replacement of a registration without an atomic call: changes of others are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    ServiceUnavailableError,
    TableNotFoundError,
)

from lance_ns_async import TableId, registry
from lance_ns_async.backends.journal import PREFIX, JournalBackend, note_of
from lance_ns_async.calls.policy import Caller, Policy
from lance_ns_async.model import Table
from tests.contract.conftest import Home
from tests.contract.site import Site

if TYPE_CHECKING:
    import pyarrow as pa

Meddle = Callable[[str, TableId], Awaitable[None]]


async def _nobody(operation: str, id: TableId) -> None:
    """Does nothing."""


@dataclass
class Noting:
    """A backend that replaces by notes, other clients of the same catalog, and a table."""

    ours: Any
    theirs: Any
    id: TableId

    def meddle(self, meddle: Meddle) -> None:
        """Performs an operation of another client before each call."""
        self.ours.meddle = meddle


def between(kind: Any) -> Any:
    """Returns a kind of backend that performs an operation of another client before its calls."""

    class Between(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.meddle: Meddle = _nobody
            self.declared: list[TableId] = []

        async def _describe_registration(self, id: TableId, *, vend: bool) -> Table:
            await self.meddle("describe", id)
            return await super()._describe_registration(id, vend=vend)  # type: ignore[no-any-return]

        async def _declare_registration(
            self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None
        ) -> Table:
            await self.meddle("declare", id)
            made: Table = await super()._declare_registration(id, location, properties, schema)
            self.declared.append(id)
            return made

        async def _remove_registration(self, id: TableId) -> None:
            await self.meddle("deregister", id)
            await super()._remove_registration(id)

    return Between


@pytest.fixture
async def noting(site: Site, home: Home) -> AsyncIterator[Noting]:
    kind: Any = registry.load(site.impl)
    if site.served or not issubclass(kind, JournalBackend):
        pytest.skip("it replaces in one call")
    opened = [
        between(kind).open(kind.settings.parse(site.properties), Caller(Policy(max_retries=0), kind.errors))
        for _ in range(2)
    ]
    yield Noting(opened[0], opened[1], home.id.table("t"))
    for one in opened:
        await one.aclose()


async def found(noting: Noting, id: TableId) -> tuple[str, str | None]:
    """Returns the location and the owner of the entry with exactly that name."""
    table = await noting.theirs._describe_registration(id, vend=False)
    return table.location, table.properties.get("owner")


async def test_a_table_with_the_name_of_a_note_stays(noting: Noting) -> None:
    """It belongs to a user; other tools can create such names."""
    other = note_of(noting.id)
    place = (await noting.theirs._declare_registration(other, None, {"owner": "other"}, None)).location
    old = await noting.ours.declare_table(noting.id, None, {"owner": "old"})
    with pytest.raises(InvalidTableStateError, match=other.name):
        await noting.ours.replace_table(old, old.location, {"owner": "new"})
    assert await found(noting, noting.id) == (old.location, "old")
    await noting.ours.deregister_table(noting.id)
    with pytest.raises(TableNotFoundError):
        await noting.ours.deregister_table(noting.id)
    assert await found(noting, other) == (place, "other")


async def noted(noting: Noting, properties: Mapping[str, str]) -> str:
    """Leaves the note of a replacement by another client that was interrupted right after it; returns its location."""
    old = await noting.theirs.describe_table(noting.id)
    place = f"{old.location}_noted"

    async def cut(operation: str, id: TableId) -> None:
        if note_of(noting.id) in noting.theirs.declared:
            raise ServiceUnavailableError("Service unavailable: cut off")

    noting.theirs.meddle = cut
    with pytest.raises(ServiceUnavailableError):
        await noting.theirs.replace_table(old, place, properties)
    noting.theirs.meddle = _nobody
    return place


async def test_another_registration_of_the_name_is_not_replaced(noting: Noting) -> None:
    old = await noting.ours.declare_table(noting.id, None, {"owner": "old"})
    await noting.theirs.deregister_table(noting.id)
    with pytest.raises(TableNotFoundError):
        await noting.ours.replace_table(old, old.location, {"owner": "new"})
    theirs = await noting.theirs.declare_table(noting.id, None, {"owner": "theirs"})
    with pytest.raises(ConcurrentModificationError):
        await noting.ours.replace_table(old, old.location, {"owner": "new"})
    assert await found(noting, noting.id) == (theirs.location, "theirs")
    with pytest.raises(TableNotFoundError):
        await found(noting, note_of(noting.id))


@pytest.mark.parametrize("operation", ["declare", "describe"])
async def test_what_others_replace_meanwhile_is_theirs(noting: Noting, operation: str) -> None:
    old = await noting.ours.declare_table(noting.id, None, {"owner": "old"})
    place = f"{old.location}_theirs"

    async def meddle(called: str, id: TableId) -> None:
        if called == operation:
            noting.meddle(_nobody)
            await noting.theirs.replace_table(old, place, {"owner": "theirs"})

    noting.meddle(meddle)
    with pytest.raises(ConcurrentModificationError):
        await noting.ours.replace_table(old, old.location, {"owner": "new"})
    assert await found(noting, noting.id) == (place, "theirs")
    with pytest.raises(TableNotFoundError):
        await found(noting, note_of(noting.id))


@pytest.mark.parametrize("operation", ["declare", "describe"])
async def test_a_note_of_others_stays(noting: Noting, operation: str) -> None:
    """Another client's replacement began after this one, and continues."""
    old = await noting.ours.declare_table(noting.id, None, {"owner": "old"})
    place = ""

    async def meddle(called: str, id: TableId) -> None:
        nonlocal place
        if (called, id.name.startswith(PREFIX)) == (operation, False):
            noting.meddle(_nobody)
            place = await noted(noting, {"owner": "theirs"})

    noting.meddle(meddle)
    with pytest.raises(ConcurrentModificationError):
        await noting.ours.replace_table(old, old.location, {"owner": "new"})
    # If the old registration was gone, they wrote the note with the registration that they found.
    assert await found(noting, noting.id) == (old.location, "old" if operation == "describe" else "new")
    assert await found(noting, note_of(noting.id)) == (place, "theirs")


async def test_what_was_described_by_its_note_is_replaced(noting: Noting) -> None:
    await noting.theirs.declare_table(noting.id, None, {"owner": "old"})
    place = await noted(noting, {"owner": "noted"})
    await noting.theirs._remove_registration(noting.id)
    old = await noting.ours.describe_table(noting.id)
    assert old.location == place and old.properties.get("owner") == "noted"
    await noting.ours.replace_table(old, place, {"owner": "new"})
    assert await found(noting, noting.id) == (place, "new")
    with pytest.raises(TableNotFoundError):
        await found(noting, note_of(noting.id))


async def test_what_others_noted_since_it_was_described_is_theirs(noting: Noting) -> None:
    old = await noting.ours.declare_table(noting.id, None, {"owner": "old"})
    place = await noted(noting, {"owner": "theirs"})
    await noting.theirs._remove_registration(noting.id)
    with pytest.raises(ConcurrentModificationError):
        await noting.ours.replace_table(old, old.location, {"owner": "new"})
    assert await found(noting, noting.id) == (place, "theirs")


@pytest.mark.parametrize(
    "error", [ServiceUnavailableError("Service unavailable: t"), asyncio.CancelledError()], ids=type
)
async def test_a_declaration_is_removed_if_the_note_cannot_be_checked(noting: Noting, error: BaseException) -> None:
    async def meddle(operation: str, id: TableId) -> None:
        if operation == "describe" and id == note_of(noting.id):
            noting.meddle(_nobody)
            raise error

    noting.meddle(meddle)
    with pytest.raises(type(error)) as raised:
        await noting.ours.declare_table(noting.id, None, {})
    assert raised.value is error
    with pytest.raises(TableNotFoundError):
        await found(noting, noting.id)


async def test_a_declaration_that_cannot_be_taken_back_is_reported(noting: Noting) -> None:
    async def meddle(operation: str, id: TableId) -> None:
        if operation == "describe":
            raise ServiceUnavailableError("Service unavailable: t")

    noting.meddle(meddle)
    with pytest.raises(ServiceUnavailableError) as raised:
        await noting.ours.declare_table(noting.id, None, {})
    place, _ = await found(noting, noting.id)
    (note,) = raised.value.__notes__
    assert note.startswith(f"and table {noting.id} stays registered at {place}") and "deregister_table" in note


async def test_a_declaration_that_fails_leaves_the_note_that_it_found(noting: Noting) -> None:
    await noting.theirs.declare_table(noting.id, None, {"owner": "old"})
    place = await noted(noting, {"owner": "noted"})
    await noting.theirs._remove_registration(noting.id)

    async def meddle(operation: str, id: TableId) -> None:
        if operation == "deregister":
            noting.meddle(_nobody)
            raise ServiceUnavailableError("Service unavailable: t")

    noting.meddle(meddle)
    with pytest.raises(ServiceUnavailableError):
        await noting.ours.declare_table(noting.id, None, {"owner": "new"})
    described = await noting.ours.describe_table(noting.id)
    assert described.location == place and described.properties.get("owner") == "noted"
