"""What becomes of a change whose answer was lost: it is looked up, and never sent again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.errors import PHRASES, failure_of
from lance_ns_async.model import Id

T = TypeVar("T")


async def settled(
    id: Id,
    create: Callable[[], Awaitable[T]],
    find: Callable[[], Awaitable[T | None]],
    taken: type[LanceNamespaceError] = TableAlreadyExistsError,
) -> T:
    """What `create` makes; where it may have made it without an answer, what `find` gives.

    `find` gives None for what another call made, which raises `taken`. Where it fails, the first error stands:
    whether anything was made is unknown. Costs one call, and one more where the answer was lost.
    """
    try:
        return await create()
    except (ServiceUnavailableError, InternalError) as e:
        if not _may_have_acted(e):
            raise
        lost = e
    try:
        found = await find()
    except LanceNamespaceError as e:
        raise lost from e
    if found is None:
        raise taken(f"{PHRASES[taken]}: {id} (made by another)") from lost
    return found


async def removed(remove: Callable[[], Awaitable[None]], find: Callable[[], Awaitable[object]]) -> None:
    """Does `remove`; where it may have removed without an answer, returns if `find` raises that nothing is there.

    Where `find` finds it or fails otherwise, the first error stands. Costs as much as `settled`.
    """
    try:
        await remove()
        return
    except (ServiceUnavailableError, InternalError) as e:
        if not _may_have_acted(e):
            raise
        lost = e
    try:
        await find()
    except (NamespaceNotFoundError, TableNotFoundError):
        return
    except LanceNamespaceError as e:
        raise lost from e
    raise lost


def _may_have_acted(error: LanceNamespaceError) -> bool:
    """Whether the call that failed so may have done what it was to do; without a failure it was never sent."""
    failure = failure_of(error)
    return failure is not None and failure.delivered is not False
