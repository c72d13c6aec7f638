"""The compared clients: each is a context manager that yields one coroutine function, which describes all tables."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing
from typing import Any

import anyio
import orjson

Name = tuple[str, str]
"""A namespace and a table in it."""

Describe = Callable[[Sequence[Name]], Awaitable[list[str]]]
"""Returns the locations of some tables, in their order."""

Stack = Callable[[str, int], AbstractAsyncContextManager[Describe]]
"""Opens a client on an endpoint with a maximum number of requests in flight."""


@asynccontextmanager
async def ours(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides the bulk call of `AsyncNamespace`."""
    from lance_ns_async import AsyncNamespace, Policy

    policy = Policy(max_in_flight=in_flight)
    async with AsyncNamespace.connect("iceberg", {"endpoint": endpoint}, policy=policy) as namespace:

        async def describe(names: Sequence[Name]) -> list[str]:
            return locations(names, await namespace.describe_tables(names))

        yield describe


@asynccontextmanager
async def ours_rest(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides the bulk call of `AsyncNamespace` on the Lance REST Namespace protocol."""
    from lance_ns_async import AsyncNamespace, Policy

    policy = Policy(max_in_flight=in_flight)
    async with AsyncNamespace.connect("rest", {"uri": endpoint}, policy=policy) as namespace:
        # The first batch of a namespace finds out that this server has none; that is not part of the measurement.
        await namespace.describe_tables(("ns00", f"table_{number}") for number in range(20))

        async def describe(names: Sequence[Name]) -> list[str]:
            return locations(names, await namespace.describe_tables(names))

        yield describe


@asynccontextmanager
async def pylance_rest(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides pylance's own namespace for this protocol, in threads that share it and its connections."""
    import lance_namespace

    namespace = lance_namespace.connect("rest", {"uri": endpoint})

    def one(name: Name) -> str:
        response = namespace.describe_table(lance_namespace.DescribeTableRequest(id=list(name)))
        assert response.location is not None
        return response.location

    with ThreadPoolExecutor(in_flight) as pool:

        async def describe(names: Sequence[Name]) -> list[str]:
            return list(pool.map(one, names))

        yield describe


@asynccontextmanager
async def ours_sync(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides the bulk call of the synchronous `Namespace`."""
    from lance_ns_async import Namespace, Policy

    policy = Policy(max_in_flight=in_flight)
    with Namespace.connect("iceberg", {"endpoint": endpoint}, policy=policy) as namespace:

        async def describe(names: Sequence[Name]) -> list[str]:
            return locations(names, namespace.describe_tables(names))

        yield describe


def locations(names: Sequence[Name], described: Any) -> list[str]:
    """Returns the locations of a bulk result, in the order of the names; raises an error if a table failed."""
    tables: Mapping[Name, Any] = described.raise_for_errors().tables
    return [tables[name].location for name in names]


@asynccontextmanager
async def aiohttp_bare(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides aiohttp alone, in its fastest form: no cookies, ready-made URLs, one JSON decode."""
    import aiohttp
    from yarl import URL

    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def one(name: Name) -> str:
            url = URL(f"{endpoint}{path(name)}", encoded=True)
            async with session.get(url, allow_redirects=False) as response:
                return location_of(response.status, await response.read())

        yield in_workers(in_flight, one)


@asynccontextmanager
async def httpx_plain(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides `httpx.AsyncClient`, with a pool as large as the maximum of requests in flight."""
    import httpx

    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    async with httpx.AsyncClient(base_url=endpoint, limits=limits, timeout=60) as client:

        async def one(name: Name) -> str:
            response = await client.get(path(name))
            return location_of(response.status_code, response.content)

        yield in_workers(in_flight, one)


@asynccontextmanager
async def niquests(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides niquests, with a pool as large as the maximum of requests in flight."""
    from niquests import AsyncSession

    async with AsyncSession(pool_maxsize=in_flight) as session:

        async def one(name: Name) -> str:
            response = await session.get(f"{endpoint}{path(name)}")
            return location_of(response.status_code, response.content)

        yield in_workers(in_flight, one)


@asynccontextmanager
async def pyqwest(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides pyqwest."""
    from pyqwest import Client

    client = Client()

    async def one(name: Name) -> str:
        response = await client.get(f"{endpoint}{path(name)}")
        return location_of(response.status, response.content)

    yield in_workers(in_flight, one)


@asynccontextmanager
async def pyreqwest(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides pyreqwest."""
    from pyreqwest.client import ClientBuilder

    async with ClientBuilder().error_for_status(False).build() as client:

        async def one(name: Name) -> str:
            response = await client.get(f"{endpoint}{path(name)}").build().send()
            return location_of(response.status, bytes(await response.bytes()))

        yield in_workers(in_flight, one)


@asynccontextmanager
async def wreq(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides wreq."""
    from wreq import Client

    client = Client()

    async def one(name: Name) -> str:
        response = await client.get(f"{endpoint}{path(name)}")
        return location_of(int(response.status.as_int()), bytes(await response.bytes()))

    yield in_workers(in_flight, one)


@asynccontextmanager
async def peer_sequential(endpoint: str, _: int) -> AsyncIterator[Describe]:
    """Provides lance-namespace-impls, one table after another."""
    with closing(peer(endpoint)) as namespace:

        async def describe(names: Sequence[Name]) -> list[str]:
            return [peer_describe(namespace, name) for name in names]

        yield describe


@asynccontextmanager
async def peer_threads(endpoint: str, in_flight: int) -> AsyncIterator[Describe]:
    """Provides lance-namespace-impls in threads with one namespace each; a shared one keeps only one connection."""
    with ExitStack() as stack, ThreadPoolExecutor(in_flight) as pool:
        own = threading.local()
        namespaces = [stack.enter_context(closing(peer(endpoint))) for _ in range(in_flight)]

        def one(name: Name) -> str:
            if not hasattr(own, "namespace"):
                own.namespace = namespaces.pop()
            return peer_describe(own.namespace, name)

        async def describe(names: Sequence[Name]) -> list[str]:
            return list(pool.map(one, names))

        yield describe


def peer(endpoint: str) -> Any:
    """Provides the peer's namespace, after it has requested its configuration."""
    from lance_namespace_impls.iceberg import IcebergNamespace

    namespace = IcebergNamespace(endpoint=endpoint)
    namespace._resolve_prefix("bench")
    return namespace


def peer_describe(namespace: Any, name: Name) -> str:
    """Makes one describe by the peer, whose ids begin with the warehouse."""
    from lance_namespace import DescribeTableRequest

    location: str = namespace.describe_table(DescribeTableRequest(id=["bench", *name])).location
    return location


def path(name: Name) -> str:
    """Returns the request target that describes a table."""
    return f"/v1/namespaces/{name[0]}/tables/{name[1]}?snapshots=refs"


def location_of(status: int, body: bytes) -> str:
    """Returns the location in a LoadTableResponse of a Lance table."""
    metadata = orjson.loads(body)["metadata"]
    if status != 200 or metadata["properties"]["table_type"] != "lance":
        raise ValueError(f"no Lance table: {status} {body[:200]!r}")
    location: str = metadata["location"]
    return location


def in_workers(in_flight: int, one: Callable[[Name], Awaitable[str]]) -> Describe:
    """Runs single describes in as many workers as requests may be in flight."""

    async def describe(names: Sequence[Name]) -> list[str]:
        found = [""] * len(names)
        rest: Iterator[tuple[int, Name]] = iter(enumerate(names))

        async def work() -> None:
            for number, name in rest:
                found[number] = await one(name)

        async with anyio.create_task_group() as group:
            for _ in range(min(in_flight, len(names))):
                group.start_soon(work)
        return found

    return describe


STACKS: dict[str, Stack] = {
    "ours": ours,
    "ours sync": ours_sync,
    "ours rest": ours_rest,
    "pylance rest": pylance_rest,
    "aiohttp": aiohttp_bare,
    "httpx": httpx_plain,
    "niquests": niquests,
    "pyqwest": pyqwest,
    "pyreqwest": pyreqwest,
    "wreq": wreq,
    "peer": peer_sequential,
    "peer threads": peer_threads,
}
