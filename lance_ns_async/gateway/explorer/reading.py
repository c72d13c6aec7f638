"""Reads of the catalog for pages: each part of a page is read on its own, and may fail on its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async.gateway.explorer.layout import FailedPart
from lance_ns_async.gateway.responses import RequestError, log_unexpected
from lance_ns_async.gateway.rights import GrantedNamespace
from lance_ns_async.spec.routes import BY_OPERATION
from lance_ns_async.storage.datasets import LATEST, Snapshot

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)

READ_SECONDS = 15  # Maximum seconds of one read: a page must not wait for a part that hangs.


class CatalogReader:
    """The reading operations of a namespace with the rights of a token."""

    def __init__(self, namespace: GrantedNamespace) -> None:
        self._namespace = namespace

    async def read(self, operation: str, **fields: Any) -> Any:
        """Returns the response of an operation of the spec, whose request has these fields."""
        method = getattr(self._namespace, operation, None)
        if method is None:
            raise UnsupportedOperationError(f"Not supported: {operation} (the catalog does not have this operation)")
        async with asyncio.timeout(READ_SECONDS):
            return await method(BY_OPERATION[operation].request(**fields))

    async def read_dataset(
        self,
        id: Sequence[str],
        work: Callable[[LanceDataset], T],
        snapshot: Snapshot = LATEST,
        filter: str | None = None,
    ) -> T:
        """Returns the result of `work` on a dataset, in a worker thread; the texts of a filter are checked before."""
        async with asyncio.timeout(READ_SECONDS):
            return await self._namespace.read_dataset(id, work, snapshot, filter)


async def outcome(work: Awaitable[T]) -> T | FailedPart:
    """Returns the result of `work`, or its error as a part of a page; raises only what ends tasks or the process."""
    try:
        return await work
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # a part of a page shows it; includes panics of Rust
        return failure(e)


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns the results of concurrent work that raises no errors."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(it) for it in work]
    return [task.result() for task in tasks]


def failure(error: BaseException) -> FailedPart:
    """Returns an error as a part of a page; unexpected errors go to the log, and the page contains only their id."""
    match error:
        case UnsupportedOperationError() | TableNotFoundError():
            return FailedPart(str(error), error, is_quiet=True)
        case LanceNamespaceError() | RequestError():
            return FailedPart(str(error), error)
        case TimeoutError():
            return FailedPart(
                f"Service unavailable: no response within {READ_SECONDS} s; reload the page to try again", error
            )
    return FailedPart(f"Internal error: the gateway's log has the details under {log_unexpected(error, log)}", error)
