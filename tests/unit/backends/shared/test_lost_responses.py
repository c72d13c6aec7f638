"""Changes whose response was lost: the lookups, and the resulting errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import lance_namespace.errors as err
import pytest

from lance_ns_async import NamespaceId, TableId
from lance_ns_async.backends.shared.lost_responses import (
    LOST_RACE,
    create_or_check_race,
    create_or_find,
    remove_or_check,
)
from lance_ns_async.errors import Failure, with_failure
from tests.support.errors import catch

ID = TableId(["a", "t"])


def failing(error: err.LanceNamespaceError, cause: Exception | None = None) -> Callable[[], Awaitable[NoReturn]]:
    if isinstance(cause, Failure):
        with_failure(error, cause)

    async def fail() -> NoReturn:
        raise error from cause

    return fail


def lost(delivered: bool | None = None) -> Callable[[], Awaitable[NoReturn]]:
    return failing(err.ServiceUnavailableError("lost"), Failure("disconnected", message="cut", delivered=delivered))


async def it() -> str:
    return "it"


async def nothing() -> None:
    return None


async def test_what_was_answered_is_not_looked_up() -> None:
    assert await create_or_find(ID, it, failing(err.InternalError("looked up"))) == "it"
    await remove_or_check(nothing, failing(err.InternalError("looked up")))


@pytest.mark.parametrize("delivered", [None, True])
async def test_what_may_have_been_done_is_looked_up(delivered: bool | None) -> None:
    assert await create_or_find(ID, lost(delivered), it) == "it"
    for missing in (err.TableNotFoundError("gone"), err.NamespaceNotFoundError("gone")):
        await remove_or_check(lost(delivered), failing(missing))
    await catch(err.ServiceUnavailableError, remove_or_check(lost(delivered), it), "lost")


async def test_an_object_of_others_is_reported_as_existing() -> None:
    with pytest.raises(
        err.TableAlreadyExistsError, match=r"^Table already exists: a\$t \(created by another client\)$"
    ):
        await create_or_find(ID, lost(), nothing)
    with pytest.raises(
        err.NamespaceAlreadyExistsError, match=r"^Namespace already exists: a \(created by another client\)$"
    ):
        await create_or_find(NamespaceId(["a"]), lost(), nothing, err.NamespaceAlreadyExistsError)


async def test_a_creation_that_lost_a_race_did_not_create_what_is_found() -> None:
    rolled_back = failing(err.InternalError("lost"), Failure(LOST_RACE, message="another was first"))
    await catch(err.TableAlreadyExistsError, create_or_find(ID, rolled_back, it))


async def test_if_the_lookup_fails_the_first_error_is_raised() -> None:
    find = failing(err.PermissionDeniedError("not yours"))
    for work in (create_or_find(ID, lost(), find), remove_or_check(lost(), find)):
        raised = await catch(err.ServiceUnavailableError, work, "lost")
        assert isinstance(raised.value.__cause__, err.PermissionDeniedError)


async def test_a_call_that_may_have_acted_is_known_whatever_its_error_was_raised_from() -> None:
    """If a lookup failed, too, the error has that of the lookup as its cause."""

    async def create() -> str:
        return await create_or_find(ID, lost(), failing(err.PermissionDeniedError("not yours")))

    assert await create_or_find(ID, create, it) == "it"


@pytest.mark.parametrize(
    "create",
    [
        lost(delivered=False),
        # It waited for a token that another call then failed to get: such an error has no failure of its own.
        failing(err.ServiceUnavailableError("lost"), err.ServiceUnavailableError("no token")),
        failing(err.ServiceUnavailableError("lost")),
    ],
    ids=["refused", "shared", "waited"],
)
async def test_what_was_never_sent_is_not_looked_up(create: Callable[[], Awaitable[NoReturn]]) -> None:
    for work in (create_or_find(ID, create, it), remove_or_check(create, failing(err.TableNotFoundError("gone")))):
        await catch(err.ServiceUnavailableError, work, "lost")


async def test_another_error_is_no_lost_answer() -> None:
    denied = failing(err.PermissionDeniedError("not yours"), Failure(403, message="no", delivered=None))
    for work in (create_or_find(ID, denied, it), remove_or_check(denied, failing(err.TableNotFoundError("gone")))):
        await catch(err.PermissionDeniedError, work)


SPACE = NamespaceId(["a"])


def answers(*outcomes: str | err.LanceNamespaceError) -> Callable[[], Awaitable[str]]:
    """Returns a call that returns or raises each outcome once, in order."""
    left = iter(outcomes)

    async def call() -> str:
        outcome = next(left)
        if isinstance(outcome, str):
            return outcome
        raise outcome

    return call


def lost_race(code: str = LOST_RACE) -> err.InternalError:
    return with_failure(err.InternalError("lost"), Failure(code, message="lost"))


async def test_only_a_lost_race_is_looked_up() -> None:
    assert await create_or_check_race(SPACE, answers("made"), answers()) == "made"
    await catch(err.InternalError, create_or_check_race(SPACE, answers(lost_race("INTERNAL")), answers()), "lost")
    with pytest.raises(err.NamespaceAlreadyExistsError, match="created by another call at the same time"):
        await create_or_check_race(SPACE, answers(lost_race()), answers("there"))


async def test_a_namespace_that_was_dropped_meanwhile_is_created_again() -> None:
    gone = err.NamespaceNotFoundError("gone")
    assert await create_or_check_race(SPACE, answers(lost_race(), "made"), answers(gone)) == "made"


async def test_a_lookup_that_fails_leaves_the_first_error() -> None:
    with pytest.raises(err.InternalError, match="lost"):
        await create_or_check_race(SPACE, answers(lost_race()), answers(err.PermissionDeniedError("no")))
