"""Tokens that expire: one fetch for all concurrent callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from lance_namespace.errors import ServiceUnavailableError, UnauthenticatedError

from lance_ns_async.transports.http.token_sources import RenewedTokens, Token


class Endpoint:
    """Issues `1`, `2` ... as tokens on demand; first fails a number of times."""

    def __init__(self, *failures: BaseException, lifetime: float = 3600.0, is_open: bool = True) -> None:
        self.failures = list(failures)
        self.lifetime = lifetime
        self.fetches = 0
        self.most = 0
        self.name: Callable[[int], str] = str
        self._inside = 0
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()

    async def __call__(self) -> Token:
        self.fetches += 1
        number = self.fetches
        self._inside += 1
        self.most = max(self.most, self._inside)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if self.failures:
                raise self.failures.pop(0)
            return Token(self.name(number), self.lifetime)
        finally:
            self._inside -= 1


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def at_once(ask: Callable[[], Awaitable[str]], callers: int = 100) -> list[str | BaseException]:
    return await asyncio.gather(*(ask() for _ in range(callers)), return_exceptions=True)


async def test_a_token_is_fetched_when_it_is_first_needed_and_kept() -> None:
    endpoint = Endpoint()
    tokens = RenewedTokens(endpoint)
    assert endpoint.fetches == 0
    assert [await tokens.current() for _ in range(3)] == ["1"] * 3 and endpoint.fetches == 1


async def test_many_callers_share_one_fetch() -> None:
    endpoint = Endpoint()
    tokens = RenewedTokens(endpoint)
    assert await at_once(tokens.current) == ["1"] * 100
    assert await at_once(lambda: tokens.replace("1")) == ["2"] * 100
    assert (endpoint.fetches, endpoint.most) == (2, 1)


async def test_a_token_that_somebody_renewed_meanwhile_is_not_renewed() -> None:
    endpoint = Endpoint()
    tokens = RenewedTokens(endpoint)
    await tokens.current()
    await tokens.replace("1")
    assert await tokens.replace("1") == "2" and await tokens.current() == "2" and endpoint.fetches == 2


async def test_an_endpoint_that_gives_the_same_again_is_called_once_by_all() -> None:
    endpoint = Endpoint()
    endpoint.name = lambda number: "same"
    tokens = RenewedTokens(endpoint)
    await tokens.current()
    assert await at_once(lambda: tokens.replace("same")) == ["same"] * 100
    assert endpoint.fetches == 2
    assert await tokens.replace("same") == "same" and endpoint.fetches == 3


@pytest.mark.parametrize("lifetime", [0.0, -1.0])
async def test_an_expired_new_token_is_used_by_waiting_callers_only(lifetime: float) -> None:
    endpoint = Endpoint(lifetime=lifetime)
    tokens = RenewedTokens(endpoint)
    assert await at_once(tokens.current) == ["1"] * 100 and endpoint.fetches == 1
    assert await tokens.current() == "2"


@pytest.mark.parametrize(("lifetime", "is_kept"), [(1e-9, False), (60.0, True), (10.0, True), (1e9, True)])
async def test_a_token_is_kept_while_it_lives(lifetime: float, is_kept: bool) -> None:
    endpoint = Endpoint(lifetime=lifetime)
    tokens = RenewedTokens(endpoint)
    await tokens.current()
    await asyncio.sleep(0)
    assert await tokens.current() == ("1" if is_kept else "2")


async def test_a_failure_is_shared_by_those_who_waited_and_the_next_asks_again() -> None:
    refused = UnauthenticatedError("Unauthenticated: the catalog (fetch_token: invalid_client)")
    endpoint = Endpoint(refused)
    tokens = RenewedTokens(endpoint)
    failed = await at_once(tokens.current)
    assert {(type(e), str(e)) for e in failed} == {(UnauthenticatedError, str(refused))}
    assert len({id(e) for e in failed}) == 100, "a shared exception would gather everybody's traceback"
    assert endpoint.fetches == 1
    assert await at_once(tokens.current) == ["2"] * 100 and endpoint.fetches == 2


async def test_a_failed_renewal_leaves_the_old_token_to_who_does_not_know_better() -> None:
    endpoint = Endpoint()
    tokens = RenewedTokens(endpoint)
    await tokens.current()
    endpoint.failures.append(ServiceUnavailableError("Service unavailable: the catalog"))
    failed = await at_once(lambda: tokens.replace("1"))
    assert {type(e) for e in failed} == {ServiceUnavailableError} and endpoint.fetches == 2
    assert await tokens.current() == "1" and await tokens.replace("1") == "3"


async def test_a_cancelled_leader_hands_the_fetch_on() -> None:
    endpoint = Endpoint(is_open=False)
    tokens = RenewedTokens(endpoint)
    leader = asyncio.create_task(tokens.current())
    await settle()
    followers = [asyncio.create_task(tokens.current()) for _ in range(50)]
    await settle()
    leader.cancel()
    await settle()
    assert endpoint.fetches == 2 and leader.cancelled()
    endpoint.gate.set()
    assert await asyncio.gather(*followers) == ["2"] * 50
    assert (endpoint.fetches, endpoint.most) == (2, 1)


async def test_a_cancelled_follower_disturbs_nobody() -> None:
    endpoint = Endpoint(is_open=False)
    tokens = RenewedTokens(endpoint)
    callers = [asyncio.create_task(tokens.current()) for _ in range(10)]
    await settle()
    for follower in callers[1::2]:
        follower.cancel()
    endpoint.gate.set()
    done = await asyncio.gather(*callers, return_exceptions=True)
    assert done[::2] == ["1"] * 5
    assert all(isinstance(e, asyncio.CancelledError) for e in done[1::2]) and endpoint.fetches == 1


async def test_a_fault_of_ours_is_not_shared() -> None:
    endpoint = Endpoint(ZeroDivisionError())
    tokens = RenewedTokens(endpoint)
    done = await at_once(tokens.current, callers=5)
    assert isinstance(done[0], ZeroDivisionError) and done[1:] == ["2"] * 4


def test_a_token_does_not_show_itself() -> None:
    assert "hush" not in repr(Token("hush", 5.0))
