"""Operations through the proxy, and checks of their results."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import lance_namespace as spec
import pytest
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.errors import PHRASES
from tests.faults.catalogs import HTTP, SECRET, Catalog, open_catalog, properties
from tests.faults.error_responses import AWS, ERROR_FORMS, OTHER_STATUSES, STATUSES, WAITS
from tests.faults.faults import BROKEN_ON_ANY_WIRE, LIMIT, ON_ANY_WIRE, Expected, Fault, Then
from tests.faults.http_faults import BROKEN, FRAMES, OTHER_THRIFT, THRIFT, UNUSUAL, WRONG_FORMATS
from tests.faults.proxy import PATIENCE, Proxy
from tests.support import budget

T = TypeVar("T")

GROUPS: Sequence[tuple[str, Sequence[Fault]]] = (
    ("Incomplete responses", (*BROKEN_ON_ANY_WIRE, *BROKEN)),
    ("Responses in a wrong format", WRONG_FORMATS),
    ("Unusual responses", UNUSUAL),
    ("HTTP statuses", STATUSES),
    ("Retry-After", WAITS),
    ("Error bodies of unknown form", ERROR_FORMS),
    ("AWS", AWS),
    ("Thrift", THRIFT),
)
"""The faults with expectations, in the groups of the documentation."""

FAULTS = (
    *(fault for _, faults in GROUPS for fault in faults),
    *(*ON_ANY_WIRE, *FRAMES, *OTHER_STATUSES, *OTHER_THRIFT),
)
"""All faults."""

CASES = [(fault, impl) for fault in FAULTS for impl in fault.expected or ()]
"""The faults with expectations, for each catalog."""


def for_faults(*then: Then, right: bool = False, one_of_each: bool = False) -> pytest.MarkDecorator:
    """Parametrizes a test by faults with one of these `then`, for each catalog; `right` adds the harmless faults. The
    catalogs over HTTP share a transport: the usual run has one of them for each expectation of a fault. With
    `one_of_each`, it has one fault of each expectation for each transport: for tests of what happens after the
    error."""
    result, usual = [], set()
    for fault, impl in CASES:
        expected = (fault.expected or {})[impl]
        if right if expected is None else expected.then in then:
            kind = ("" if one_of_each else fault.name, "http" if impl in HTTP else impl, expected)
            marks = [budget.thorough] if kind in usual else []
            usual.add(kind)
            result.append(pytest.param(fault, impl, id=f"{impl}: {fault.name}", marks=marks))
    return pytest.mark.parametrize(("fault", "impl"), result)


ANY: Sequence[Then] = ("again", "reads", "never", "doubt", "void")
ATTEMPTS = 3  # Maximum number of attempts of a call in the tests
_TIMEOUT = 60.0  # Maximum seconds of an operation, including the simulated time of the proxy


@asynccontextmanager
async def connect(
    catalog: Catalog,
    url: str,
    *,
    repeats: int = 0,
    without: Collection[str] = (),
    more: Mapping[str, str] | None = None,
) -> AsyncIterator[AsyncNamespace]:
    """Connects to the catalog at `url`; asserts afterwards that no task of the client is left."""
    limits = {
        "attempt_timeout": f"{PATIENCE}s",
        "max_retries": str(repeats),
        "backoff_initial": "1ms",
        "backoff_max": "2ms",
        "max_response_bytes": str(LIMIT),
    }
    before = asyncio.all_tasks()
    usual = {key: value for key, value in properties(catalog.impl, url).items() if key not in without}
    async with AsyncNamespace.connect(catalog.impl, {**usual, **limits, **(more or {})}) as ns:
        yield ns
    left = {task for task in asyncio.all_tasks() - before if not _of_server(task)}
    assert not left, f"tasks were left: {left}"


def _of_server(task: asyncio.Task[Any]) -> bool:
    return any(name in repr(task.get_coro()) for name in ("Server._met", "_accept_connection2", "Proxy._next"))


@asynccontextmanager
async def connect_by_proxy(
    impl: str,
    fault: Fault | None = None,
    *,
    repeats: int = 0,
    more: Mapping[str, str] | None = None,
    only: Callable[[bytes], bool] = bool,
    times: int | None = None,
    undo: TableId | None = None,
) -> AsyncIterator[tuple[Proxy, AsyncNamespace]]:
    """Provides a proxy that injects a fault, and a namespace behind it; it first removes the table `undo`."""
    catalog = open_catalog(impl)

    async def remove() -> None:
        if undo is not None:
            async with AsyncNamespace.connect(impl, properties(impl, catalog.url)) as direct:
                await direct.deregister_table(spec.DeregisterTableRequest(id=list(undo)))

    async with Proxy(catalog) as proxy, connect(catalog, proxy.url, repeats=repeats, more=more) as ns:
        proxy.inject(fault, only=only, times=times, undo=None if undo is None else remove)
        yield proxy, ns


async def outcome(work: Awaitable[T]) -> T | LanceNamespaceError:
    """Returns the result, or the error if it is one of the spec; other errors and time-outs fail the test."""
    async with asyncio.timeout(_TIMEOUT):
        try:
            return await work
        except LanceNamespaceError as e:
            check_text(e)
            return e


def check_text(error: LanceNamespaceError) -> None:
    """Asserts that an error contains no secret and has a limited length."""
    assert SECRET not in "".join(traceback.format_exception(error))
    assert len(str(error)) < 1500, error


def check(result: object, expected: Expected, *, attempts: int = 1) -> None:
    """Asserts that a read failed as expected, after this number of attempts."""
    assert type(result) is expected.error, repr(result)
    assert str(result).startswith(f"{PHRASES[expected.error]}: ") and expected.message in str(result)
    assert not in_doubt(result)
    assert ("attempts" in str(result)) == (attempts > 1) and (attempts == 1 or f"; {attempts} attempts" in str(result))


def in_doubt(error: object) -> bool:
    return "whether it took effect is unknown" in str(error)


async def describe(ns: AsyncNamespace, id: TableId) -> str | LanceNamespaceError:
    result = await outcome(ns.describe_table(spec.DescribeTableRequest(id=list(id))))
    return result if isinstance(result, LanceNamespaceError) else str(result.location)


async def list_tables(ns: AsyncNamespace, id: TableId) -> list[str] | LanceNamespaceError:
    result = await outcome(ns.list_tables(spec.ListTablesRequest(id=list(id.parent))))
    return result if isinstance(result, LanceNamespaceError) else result.tables


async def declare(ns: AsyncNamespace, id: TableId, location: str) -> spec.DeclareTableResponse | LanceNamespaceError:
    return await outcome(ns.declare_table(spec.DeclareTableRequest(id=list(id), location=location)))
