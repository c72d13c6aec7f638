"""Reads of the catalog for pages, and their errors as parts of a page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async.gateway.explorer.layout import Markup, html, visible
from lance_ns_async.gateway.responses import RequestError, log_unexpected
from lance_ns_async.spec.routes import BY_OPERATION

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)

_SECONDS = 15  # Maximum seconds of one read: a page must not wait for a part that hangs.


class CatalogReader:
    """The reading operations of a namespace.

    Args:
        namespace: An AsyncNamespace, or an object with coroutine methods of the same names.
    """

    def __init__(self, namespace: object) -> None:
        self._namespace = namespace

    async def read(self, operation: str, **fields: Any) -> Any:
        """Returns the response of an operation of the spec.

        Args:
            operation: The name of an operation that changes nothing.
            fields: The fields of its request.
        """
        method = getattr(self._namespace, operation, None)
        if method is None:
            raise UnsupportedOperationError(f"Not supported: {operation} (the catalog does not have this operation)")
        async with asyncio.timeout(_SECONDS):
            return await method(BY_OPERATION[operation].request(**fields))


async def outcome(work: Awaitable[T]) -> T | BaseException:
    """Returns the result of `work`, or its error; raises only what ends tasks or the process."""
    try:
        return await work
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # a part of a page shows it; includes panics of Rust
        return e


async def show(work: Awaitable[Markup]) -> Markup:
    """Returns the result of `work`, or its error as a part of a page; raises as `outcome`."""
    result = await outcome(work)
    return show_error(result) if isinstance(result, BaseException) else result


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns the results of concurrent work that raises no errors."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(it) for it in work]
    return [task.result() for task in tasks]


def show_error(error: BaseException) -> Markup:
    """Returns an error as a part of a page; unexpected errors go to the log, and the page contains only their id."""
    match error:
        case UnsupportedOperationError() | TableNotFoundError():
            # Nothing was written to a table that is only declared.
            return html('<p class="note">{}</p>', visible(str(error)))
        case LanceNamespaceError() | RequestError():
            message = str(error)
        case TimeoutError():
            message = f"Service unavailable: no response within {_SECONDS} s; reload the page to try again"
        case _:
            message = f"Internal error: the gateway's log has the details under {log_unexpected(error, log)}"
    return html('<p class="error" role="alert">{}</p>', visible(message))
