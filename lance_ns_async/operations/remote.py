"""Operations that a backend passes on to its server, instead of working on the dataset in this process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import pyarrow as pa
from lance_namespace.errors import UnsupportedOperationError

from lance_ns_async.backends.base import OperationMissingError
from lance_ns_async.model import TableId
from lance_ns_async.operations import requests
from lance_ns_async.session import Session
from lance_ns_async.storage import arrow

P = ParamSpec("P")
T = TypeVar("T")

_PARAMETERS = ("request", "request_data")

_NO_JOBS = "it starts a job, and a catalog runs no jobs"
_NO_TRANSACTIONS = "catalogs keep no transactions that outlive a request"

REASONS: Mapping[str, str] = {
    "alter_table_backfill_columns": _NO_JOBS,
    "create_materialized_view": _NO_JOBS,
    "refresh_materialized_view": _NO_JOBS,
    "describe_transaction": _NO_TRANSACTIONS,
    "alter_transaction": _NO_TRANSACTIONS,
}
"""The reason for each operation."""


def passed_on(
    operation: Callable[Concatenate[Session, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]:
    """Returns the operation, which sends the request to the server if the backend passes it on.

    A server that does not have the operation has done nothing, so this process performs it then.
    """
    name = operation.__name__

    @wraps(operation)
    async def local_or_remote(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        arguments = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
        data = cast("bytes | None", arguments.get("request_data"))
        streamed = isinstance(data, pa.RecordBatchReader)
        if not session.backend.passes_on(name, streamed=streamed):
            return await operation(session, *args, **kwargs)
        rows = arrow.pieces(data) if isinstance(data, pa.RecordBatchReader) else data
        with session.operation():
            try:
                return cast("T", await pass_on(session, name, arguments["request"], rows))
            except OperationMissingError:
                if streamed:
                    # The rows may be used up.
                    raise
            return await operation(session, *args, **kwargs)

    return local_or_remote


async def pass_on(
    session: Session, operation: str, request: object, data: bytes | Iterator[bytes] | None = None
) -> Any:
    """Returns the server's response to a request; requires `Backend.passes_on`."""
    # The routes need the models of all requests.
    from lance_ns_async.spec.routes import BY_OPERATION

    route = BY_OPERATION[operation]
    parsed_request = requests.parse(route.request, request)
    names = getattr(parsed_request, "id", None)
    with session.operation():
        try:
            return await session.backend.pass_on(operation, parsed_request, data)
        finally:
            if route.changes and names:
                session.locator.forget(TableId(names))


async def run(session: Session, operation: str, request: object, response: type[T]) -> T:
    """Passes a request on to the server, if the backend has one with this operation."""
    if not session.backend.passes_on(operation):
        raise UnsupportedOperationError(f"Not supported: {operation} ({REASONS[operation]})")
    result = await pass_on(session, operation, request)
    assert isinstance(result, response)
    return result
