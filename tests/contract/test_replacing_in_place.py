"""Replacement of a registration by one call, on each backend with this capability."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
from lance_namespace.errors import ConcurrentModificationError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async import registry
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from tests.contract.conftest import Parent
from tests.contract.site import Site
from tests.support.errors import catch


@pytest.fixture
async def backend(site: Site) -> AsyncIterator[Backend]:
    if site.served or not site.can.replaces:
        pytest.skip("it replaces nothing in place")
    if site.impl == "rest":
        pytest.skip("its protocol compares no registrations")
    kind = registry.load(site.impl)
    opened = kind.open(kind.settings.parse(site.properties), Caller(Policy(), kind.errors))
    yield opened
    await opened.aclose()


def ours(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the properties without those of the catalogs."""
    return {key: value for key, value in (properties or {}).items() if key.startswith("k")}


async def test_properties_are_replaced_and_the_registration_is_the_same(backend: Backend, parent: Parent) -> None:
    old = await backend.declare_table(parent.id.table("t"), None, {"k1": "a", "k2": "b"})
    new = await backend.replace_table(old, old.location, {**(old.properties or {}), "k2": "c", "k3": "d"})
    assert (new.location, new.registration) == (old.location, old.registration)
    assert ours(new.properties) == {"k1": "a", "k2": "c", "k3": "d"}
    kept = {key: value for key, value in (new.properties or {}).items() if key != "k1"}
    await backend.replace_table(new, old.location, kept)
    result = await backend.describe_table(old.id)
    assert (result.location, result.registration) == (old.location, old.registration)
    assert ours(result.properties) == {"k2": "c", "k3": "d"}


async def test_a_location_is_replaced_or_nothing_is(backend: Backend, parent: Parent) -> None:
    """Nessie ignores a new location of an existing table, so it must be refused instead of reported as done."""
    old = await backend.declare_table(parent.id.table("t"), None, {"k1": "a"})
    old = await backend.describe_table(old.id)
    place = f"{old.location}_elsewhere"
    try:
        await backend.replace_table(old, place, {"k1": "b"})
    except UnsupportedOperationError as e:
        assert old.location in str(e)
        place, kept = old.location, {"k1": "a"}
    else:
        kept = {"k1": "b"}
    result = await backend.describe_table(old.id)
    assert (result.location, ours(result.properties)) == (place, kept)


async def test_another_registration_of_the_name_is_not_replaced(backend: Backend, parent: Parent) -> None:
    old = await backend.declare_table(parent.id.table("t"), None, {"k1": "a"})
    old = await backend.describe_table(old.id)
    await backend.deregister_table(old.id)
    await catch(TableNotFoundError, backend.replace_table(old, old.location, {"k1": "b"}))
    other = await backend.declare_table(old.id, None, {"k1": "other"})
    if old.registration is not None:
        assert (await backend.describe_table(other.id)).registration != old.registration
        await catch(ConcurrentModificationError, backend.replace_table(old, old.location, {"k1": "b"}))
        assert ours((await backend.describe_table(other.id)).properties) == {"k1": "other"}


async def test_the_default_place_is_where_a_declaration_puts_it(backend: Backend, parent: Parent) -> None:
    id = parent.id.table("t")
    expected = await backend.default_location(id)
    declared = await backend.declare_table(id, None, {})
    assert expected in (None, declared.location)
