"""How the suite asks, and what it makes sure of whatever comes of it."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from lance_namespace import DeclareTableRequest, DeclareTableResponse, DescribeTableRequest, ListTablesRequest
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.errors import PHRASES
from tests.faults.aws import AWS
from tests.faults.backends import FINE, SECRET, Catalog
from tests.faults.bodies import BROKEN, LIMIT, NO_ANSWERS
from tests.faults.responses import ERROR_FORMS, RIGHT, STATUSES, WAITS
from tests.faults.server import PATIENCE
from tests.faults.table import Expected, Fault, Then
from tests.faults.thrift import THRIFT

T = TypeVar("T")

GROUPS: Sequence[tuple[str, Sequence[Fault]]] = (
    ("Incomplete responses", BROKEN),
    ("Responses in a wrong format", NO_ANSWERS),
    ("Unusual responses", RIGHT),
    ("HTTP statuses", STATUSES),
    ("Retry-After", WAITS),
    ("Error bodies of unknown form", ERROR_FORMS),
    ("AWS", AWS),
    ("Thrift", THRIFT),
)
"""All that befalls a single answer, as the documentation has it."""

CELLS = [(fault, impl) for _, faults in GROUPS for fault in faults for impl in fault.cells]


def cells(*then: Then, right: bool = False) -> pytest.MarkDecorator:
    """A test of each catalog and each fault after which that is sent again; with `right` also of harmless ones."""
    result = [
        pytest.param(fault, impl, id=f"{impl}: {fault.name}")
        for fault, impl in CELLS
        if (right if (expected := fault.cells[impl].expected) is None else expected.then in then)
    ]
    return pytest.mark.parametrize(("fault", "impl"), result)


ANY: Sequence[Then] = ("again", "reads", "never", "doubt", "void")

ATTEMPTS = 3
"""How often a call is sent that may be sent again."""

_NET = 60.0
"""Seconds in which whatever is asked for has an end, those that a server lets pass included."""

_DOUBT = "whether it took effect is unknown"


@asynccontextmanager
async def connect(
    catalog: Catalog,
    url: str,
    *,
    repeats: int = 0,
    without: Collection[str] = (),
    more: Mapping[str, str] | None = None,
) -> AsyncIterator[AsyncNamespace]:
    """A namespace of the catalog at `url`."""
    limits = {
        "attempt_timeout": f"{PATIENCE}s",
        "max_retries": str(repeats),
        "backoff_initial": "1ms",
        "backoff_max": "2ms",
    }
    bound = {"max_response_bytes": str(LIMIT)}
    before = asyncio.all_tasks()
    properties = {key: value for key, value in catalog.properties(url).items() if key not in without}
    async with AsyncNamespace.connect(catalog.impl, {**properties, **limits, **bound, **(more or {})}) as ns:
        yield ns
    left = {task for task in asyncio.all_tasks() - before if not _of_server(task)}
    assert not left, f"tasks were left: {left}"


def _of_server(task: asyncio.Task[Any]) -> bool:
    return any(name in repr(task.get_coro()) for name in ("Server._met", "_accept_connection2"))


async def outcome(work: Awaitable[T]) -> T | LanceNamespaceError:
    """What comes of it, within bounds; any other error than those of the spec fails the test."""
    async with asyncio.timeout(_NET):
        try:
            return await work
        except LanceNamespaceError as e:
            check_text(e)
            return e


def check_text(error: LanceNamespaceError) -> None:
    """An error tells no secret, and is of a bounded length."""
    text = "".join(traceback.format_exception(error))
    assert SECRET not in text
    assert len(str(error)) < 1500, error


def check(result: object, expected: Expected, *, attempts: int = 1) -> None:
    """A read has failed as it should, after so many attempts."""
    assert type(result) is expected.error, repr(result)
    assert str(result).startswith(f"{PHRASES[expected.error]}: ") and expected.words in str(result)
    assert _DOUBT not in str(result)
    assert ("attempts" in str(result)) == (attempts > 1) and (attempts == 1 or f"; {attempts} attempts" in str(result))


def in_doubt(error: LanceNamespaceError) -> bool:
    """Whether an error says that perhaps something was done."""
    return _DOUBT in str(error)


async def describe(ns: AsyncNamespace, id: TableId) -> str | LanceNamespaceError:
    """Where a table is, or why that is not told."""
    result = await outcome(ns.describe_table(DescribeTableRequest(id=list(id))))
    return result if isinstance(result, LanceNamespaceError) else str(result.location)


async def list_tables(ns: AsyncNamespace, id: TableId) -> list[str] | LanceNamespaceError:
    """The tables beside one."""
    result = await outcome(ns.list_tables(ListTablesRequest(id=list(id.parent))))
    return result if isinstance(result, LanceNamespaceError) else result.tables


async def declare(ns: AsyncNamespace, id: TableId) -> DeclareTableResponse | LanceNamespaceError:
    """What comes of declaring a table at `place_of` it."""
    return await outcome(ns.declare_table(DeclareTableRequest(id=list(id), location=place_of(id))))


def place_of(id: TableId) -> str:
    """Where a table is to be declared."""
    return f"s3://lake/{FINE}/{id.name}"
