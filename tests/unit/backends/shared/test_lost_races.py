"""Creations of namespaces that lost a race."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import lance_namespace.errors as err
import pytest

from lance_ns_async import NamespaceId
from lance_ns_async.backends.shared.lost_responses import LOST_RACE, create_or_check_race
from lance_ns_async.errors import Failure, with_failure

ID = NamespaceId(["a"])


def answers(*outcomes: str | err.LanceNamespaceError) -> Callable[[], Awaitable[str]]:
    """Returns a call that returns or raises each outcome once, in order."""
    left = iter(outcomes)

    async def call() -> str:
        outcome = next(left)
        if isinstance(outcome, str):
            return outcome
        raise outcome

    return call


def lost(code: str = LOST_RACE) -> err.InternalError:
    return with_failure(err.InternalError("lost"), Failure(code, message="lost"))


async def test_only_a_lost_race_is_looked_up() -> None:
    assert await create_or_check_race(ID, answers("made"), answers()) == "made"
    with pytest.raises(err.InternalError, match="lost"):
        await create_or_check_race(ID, answers(lost("INTERNAL")), answers())
    with pytest.raises(err.NamespaceAlreadyExistsError, match="created by another call at the same time"):
        await create_or_check_race(ID, answers(lost()), answers("there"))


async def test_a_namespace_that_was_dropped_meanwhile_is_created_again() -> None:
    gone = err.NamespaceNotFoundError("gone")
    assert await create_or_check_race(ID, answers(lost(), "made"), answers(gone)) == "made"


async def test_a_lookup_that_fails_leaves_the_first_error() -> None:
    with pytest.raises(err.InternalError, match="lost"):
        await create_or_check_race(ID, answers(lost()), answers(err.PermissionDeniedError("no")))
