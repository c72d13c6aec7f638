"""Calls that lost a race, on servers that report this as a failure of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
)

from lance_ns_async.errors import error_about, failure_of
from lance_ns_async.model import NamespaceId

T = TypeVar("T")

LOST_RACE = "lost race"
"""Code of this package for an internal error of a call that lost a race; the call changed nothing."""


async def create_or_check_race(
    id: NamespaceId, create: Callable[[], Awaitable[T]], find: Callable[[], Awaitable[object]]
) -> T:
    """Returns the result of `create`; if it lost a race, looks the namespace up.

    Args:
        id: The namespace.
        create: Creates it; a lost race is an InternalError with the code `LOST_RACE`.
        find: Looks it up; raises NamespaceNotFoundError if it is missing.

    Raises:
        NamespaceAlreadyExistsError: Another call created it at the same time.

    Cost: one call; one or two more after a lost race.
    """
    try:
        return await create()
    except InternalError as e:
        if (failure := failure_of(e)) is None or LOST_RACE not in failure.codes:
            raise
        error = e
    try:
        await find()
    except NamespaceNotFoundError:
        # The failed call has changed nothing, so that it can be sent again.
        return await create()
    except LanceNamespaceError as e:
        raise error from e
    raise error_about(
        NamespaceAlreadyExistsError, id, "create_namespace: created by another call at the same time"
    ) from error
