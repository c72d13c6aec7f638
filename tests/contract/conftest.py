"""A namespace on each site and each interface, with a separate namespace for the tables of each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import anyio.to_thread
import pytest

from lance_ns_async import AsyncNamespace, Namespace, NamespaceId, TableId
from lance_ns_async.gateway import serving
from tests.contract.site import Site
from tests.contract.sites import BEHIND_A_GATEWAY, ROUND_TRIPS, SITES, SYNC, VARIANTS, is_usual, parametrize_site
from tests.support import budget
from tests.support.gateway import Remote
from tests.support.operations import OPERATIONS
from tests.support.rooms import SELECTION

_numbers = itertools.count()


class SyncFace:
    """A sync namespace with the interface of the async one, so that each test is written once."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._namespace, name)
        if name.startswith(("iter_", "stream_")) or name in ("scan", "scan_partitions", "watch"):
            return lambda *args, **kwargs: _iterated(method(*args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await anyio.to_thread.run_sync(lambda: method(*args, **kwargs))
            return _iterated(iter(result)) if name == "scan_many" else result

        return call


class ServedFace:
    """A namespace behind a gateway: operations of the spec go through the gateway, others to the namespace itself."""

    def __init__(self, remote: Remote, namespace: AsyncNamespace) -> None:
        self._remote = remote
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._remote if name in OPERATIONS else self._namespace, name)


async def _iterated(items: Iterator[Any]) -> AsyncIterator[Any]:
    done = object()
    while (item := await anyio.to_thread.run_sync(next, items, done)) is not done:
        yield item


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Chooses the sites of a test; a thorough run has all."""
    is_round_trip = metafunc.definition.get_closest_marker("round_trip") is not None
    sites = [site for site in SITES if is_round_trip or site not in ROUND_TRIPS]
    selection = metafunc.config.stash.get(SELECTION, None)
    if selection is not None and selection.sites:
        parametrize_site(metafunc, [site for site in sites if site in selection.sites])
        return
    module = metafunc.definition.path.stem
    parametrize_site(metafunc, [it for it in sites if budget.is_thorough or is_usual(it, module)])


@pytest.hookimpl(tryfirst=True)  # Before the same function for all tests, which needs time for each item.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Excludes the sync interface from most sites."""
    excluded = {item for item in items if _is_excluded(item)}
    config.hook.pytest_deselected(items=list(excluded))
    items[:] = [item for item in items if item not in excluded]


def _is_excluded(item: pytest.Item) -> bool:
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    site = parameters.get("site")
    if parameters.get("ns") != "sync" or site in SYNC:
        return False
    return not budget.is_thorough or site in VARIANTS or site == BEHIND_A_GATEWAY


@dataclass(frozen=True)
class Parent:
    """A namespace for tables that no other test uses."""

    id: NamespaceId

    def table(self, name: str) -> list[str]:
        return [*self.id, name]

    def tables(self, *names: str) -> list[TableId]:
        return [self.id.table(name) for name in names]


@dataclass(frozen=True)
class Children:
    """A place for namespaces that no other test uses: in the parent, or beside it if it cannot contain namespaces."""

    parent: NamespaceId
    prefix: str
    joins: str | None

    def id(self, name: str, *below: str) -> NamespaceId:
        return NamespaceId(self.child(name, *below))

    def child(self, name: str, *below: str) -> list[str]:
        return [*self.parent, self.prefix + name, *below]

    def names(self, listed: Iterable[str]) -> list[str]:
        """Returns the names in a listing of the parent that belong to the children, in the form for `child`."""
        qualified = f"{self.joins.join(self.parent)}{self.joins}" if self.joins and self.parent else ""
        result = [name.removeprefix(qualified) for name in listed if name.startswith(qualified)]
        return [name.removeprefix(self.prefix) for name in result if name.startswith(self.prefix)]


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with SITES[request.param](tmp_path_factory.mktemp(request.param)) as site:
        # A variant throttles in the same way as its site.
        yield replace(site, throttle=None) if request.param in VARIANTS else site


@pytest.fixture(autouse=True)
def applies(request: pytest.FixtureRequest, site: Site) -> None:
    """Skips tests that do not apply to the site's server."""
    test, _, case = request.node.name.removesuffix("]").partition("[")
    for name, reason in site.exempt.items():
        exempt, _, value = name.removesuffix("]").partition("[")
        if test == exempt and case.endswith(value):
            pytest.skip(reason)


@pytest.fixture(params=["async", "sync"])
async def ns(request: pytest.FixtureRequest, site: Site) -> AsyncIterator[AsyncNamespace]:
    face: Literal["async", "sync"] = request.param
    if site.served:
        async with (
            AsyncNamespace.connect(site.impl, site.properties) as namespace,
            serving(namespace, allow_locations=None) as gateway,
        ):
            remote = Remote(gateway)
            yield cast(AsyncNamespace, ServedFace(remote, namespace))
            await remote.close()
    elif face == "async":
        async with AsyncNamespace.connect(site.impl, site.properties) as namespace:
            yield namespace
    else:
        with Namespace.connect(site.impl, site.properties) as sync:
            yield cast(AsyncNamespace, SyncFace(sync))


@pytest.fixture
async def parent(ns: AsyncNamespace, site: Site) -> Parent:
    id = site.above.child(f"parent{next(_numbers):03}")
    await ns.create_namespace({"id": list(id)})
    return Parent(id)


@pytest.fixture
def children(site: Site, parent: Parent) -> Children:
    return Children(parent.id, "", site.joins) if site.nests else Children(site.above, f"{parent.id.name}_", site.joins)


@pytest.fixture
def nested(site: Site) -> None:
    """Skips catalogs whose namespaces do not contain both tables and namespaces."""
    if not site.nests:
        pytest.skip("its namespaces hold tables alone")


@pytest.fixture
def cascading(site: Site) -> None:
    """Skips catalogs that cannot drop a namespace with its content."""
    if not site.can.cascades:
        pytest.skip("it drops empty namespaces alone")
