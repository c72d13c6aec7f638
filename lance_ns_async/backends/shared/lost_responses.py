"""Changes whose response was lost: the outcome is looked up, and the change is never sent again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import lance_namespace.errors as err

from lance_ns_async.errors import error_about, failure_of
from lance_ns_async.model import Id, NamespaceId

T = TypeVar("T")

LOST_RACE = "lost race"
"""Code of this package for an internal error of a call that lost a race; the call changed nothing."""


async def create_or_find(
    id: Id,
    create: Callable[[], Awaitable[T]],
    find: Callable[[], Awaitable[T | None]],
    conflict: type[err.LanceNamespaceError] = err.TableAlreadyExistsError,
) -> T:
    """Returns the result of `create`, or that of `find` if the response of `create` was lost.

    Args:
        id: The id in the error message.
        find: Looks up the created object; returns None if another call created it.
        conflict: The error to raise if another call created the object.

    Cost: one call, and one more if the response was lost.
    """
    try:
        return await create()
    except (err.ServiceUnavailableError, err.InternalError) as e:
        if not _may_have_acted(e):
            raise
        error = e
    try:
        result = await find()
    except err.LanceNamespaceError as e:
        raise error from e
    if result is None or _has_lost_race(error):
        raise error_about(conflict, id, "created by another client") from error
    return result


async def remove_or_check(remove: Callable[[], Awaitable[None]], find: Callable[[], Awaitable[object]]) -> None:
    """Runs `remove`; if its response was lost, uses `find` to check that the object is gone.

    A call that lost a race changed nothing, so it is repeated once if the object is still there.

    Args:
        remove: Removes the object; a lost race is an InternalError with the code `LOST_RACE`.
        find: Looks up the object; raises NamespaceNotFoundError or TableNotFoundError if it is gone.

    Cost: one call, and one more if the response was lost; up to four if races were lost.
    """
    for is_last in (False, True):
        try:
            await remove()
            return
        except (err.ServiceUnavailableError, err.InternalError) as e:
            if not _may_have_acted(e):
                raise
            error = e
        try:
            await find()
        except (err.NamespaceNotFoundError, err.TableNotFoundError) as e:
            if _has_lost_race(error):
                raise e from error
            return
        except err.LanceNamespaceError as e:
            raise error from e
        if is_last or not _has_lost_race(error):
            raise error


def _may_have_acted(error: err.LanceNamespaceError) -> bool:
    """Returns whether the failed call may have taken effect; an error without a `Failure` was never sent."""
    failure = failure_of(error)
    return failure is not None and failure.delivered is not False


def _has_lost_race(error: err.LanceNamespaceError) -> bool:
    """Returns whether the failed call changed nothing, because another call was first."""
    return (failure := failure_of(error)) is not None and LOST_RACE in failure.codes


async def create_or_check_race(
    id: NamespaceId, create: Callable[[], Awaitable[T]], find: Callable[[], Awaitable[object]]
) -> T:
    """Returns the result of `create`; if it lost a race, looks the namespace up.

    Args:
        id: The namespace.
        create: Creates it; a lost race is an InternalError with the code `LOST_RACE`.
        find: Looks it up; raises NamespaceNotFoundError if it is missing.

    Cost: one call; one or two more after a lost race.
    """
    try:
        return await create()
    except err.InternalError as e:
        if (failure := failure_of(e)) is None or LOST_RACE not in failure.codes:
            raise
        error = e
    try:
        await find()
    except err.NamespaceNotFoundError:
        # The failed call has changed nothing, so that it can be sent again.
        return await create()
    except err.LanceNamespaceError as e:
        raise error from e
    raise error_about(
        err.NamespaceAlreadyExistsError, id, "create_namespace: created by another call at the same time"
    ) from error
