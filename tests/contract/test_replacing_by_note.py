"""Replacing a registration where the catalog has no call for it: what others have is left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
)

from lance_ns_async import TableId, registry
from lance_ns_async.backends.journal import Journalled, note_of
from lance_ns_async.model import Table
from lance_ns_async.policy import Caller, Policy
from tests.contract.conftest import Home
from tests.contract.site import Site

if TYPE_CHECKING:
    import pyarrow as pa

Meddle = Callable[[str, TableId], Awaitable[None]]


async def _nobody(operation: str, id: TableId) -> None:
    """Does nothing."""


@dataclass
class Noting:
    """A backend that replaces by notes, others that use the same catalog, and a table."""

    ours: Any
    theirs: Any
    id: TableId

    def meddle(self, meddle: Meddle) -> None:
        """Has others do something before each call."""
        self.ours.meddle = meddle


def between(kind: Any) -> Any:
    """The kind of backend, before whose calls others can do something."""

    class Between(kind):  # type: ignore[misc]
        meddle: Meddle = staticmethod(_nobody)

        async def _described(self, id: TableId, *, vend: bool) -> Table:
            await self.meddle("describe", id)
            return await super()._described(id, vend=vend)  # type: ignore[no-any-return]

        async def _declared(
            self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None
        ) -> Table:
            await self.meddle("declare", id)
            return await super()._declared(id, location, properties, schema)  # type: ignore[no-any-return]

        async def _deregistered(self, id: TableId) -> None:
            await self.meddle("deregister", id)
            await super()._deregistered(id)

    return Between


@pytest.fixture
async def noting(site: Site, home: Home) -> AsyncIterator[Noting]:
    kind: Any = registry.load(site.impl)
    if site.served or not issubclass(kind, Journalled):
        pytest.skip("it replaces in one call")
    opened = [
        one.open(kind.settings.parse(site.properties), Caller(Policy(max_retries=0), kind.errors))
        for one in (between(kind), kind)
    ]
    yield Noting(*opened, id=home.id.table("t"))
    for one in opened:
        await one.aclose()


async def found(noting: Noting, id: TableId) -> tuple[str, str | None]:
    """Location and owner of what the catalog has of that very name."""
    table = await noting.theirs._described(id, vend=False)
    return table.location, table.properties.get("owner")


async def test_a_table_with_the_name_of_a_note_stays(noting: Noting) -> None:
    """It is a user's own, which other tools can make."""
    other = note_of(noting.id)
    place = (await noting.theirs._declared(other, None, {"owner": "other"}, None)).location
    old = await noting.ours.declare_table(noting.id, None, {"owner": "old"})
    with pytest.raises(InvalidTableStateError, match=other.name):
        await noting.ours.replace_table(old, old.location, {"owner": "new"})
    assert await found(noting, noting.id) == (old.location, "old")
    await noting.ours.deregister_table(noting.id)
    with pytest.raises(TableNotFoundError):
        await noting.ours.deregister_table(noting.id)
    assert await found(noting, other) == (place, "other")
