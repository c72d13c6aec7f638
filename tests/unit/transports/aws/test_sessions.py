"""The keys of an assumed role: used for most of their lifetime, renewed once for all calls, by the server's clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from math import inf

import pytest
from lance_namespace.errors import ServiceUnavailableError

from lance_ns_async.calls.deadline import deadline, remaining
from lance_ns_async.transports.aws import credentials
from lance_ns_async.transports.aws.credentials import AssumedCredentials, Keys, RoleSession, assumed_session


class Clock:
    """The time, and sessions of a hundred seconds that STS issues or refuses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.fetches = 0
        self.failing = False
        self.left: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def __call__(self) -> float:
        return self.now

    async def fetch(self) -> RoleSession:
        self.fetches += 1
        self.left.append(remaining() or inf)
        key = f"key-{self.fetches}"
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failing:
            raise ServiceUnavailableError("Service unavailable: the catalog (assume_role: down)")
        return RoleSession(Keys(key, "secret"), 100.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(credentials, "monotonic", clock)
    return clock


async def _key(credentials: AssumedCredentials) -> str:
    return (await credentials.current()).access_key


async def test_keys_are_renewed_before_they_end(clock: Clock) -> None:
    credentials = AssumedCredentials(clock.fetch)
    result = []
    for after in (0, 74, 1, 74, 1):
        clock.now += after
        result.append(await _key(credentials))
    assert result == ["key-1", "key-1", "key-2", "key-2", "key-3"]


async def test_others_go_on_with_the_old_keys_while_one_renews_them(clock: Clock) -> None:
    credentials = AssumedCredentials(clock.fetch)
    await credentials.current()
    clock.now += 80
    clock.gate.clear()
    renewing = asyncio.ensure_future(_key(credentials))
    await asyncio.sleep(0)
    assert await _key(credentials) == "key-1"
    clock.gate.set()
    assert await renewing == "key-2" and await _key(credentials) == "key-2" and clock.fetches == 2


async def test_an_early_renewal_may_not_take_the_time_of_the_call_that_makes_it(clock: Clock) -> None:
    credentials = AssumedCredentials(clock.fetch)
    with deadline(100):
        for after in (0, 80, 100):
            clock.now += after
            await credentials.current()
    first, early, late = clock.left
    assert first > 90 and late > 90 and 0 < early <= 5


async def test_keys_that_cannot_be_renewed_serve_until_they_are_about_to_end(clock: Clock) -> None:
    credentials = AssumedCredentials(clock.fetch)
    await credentials.current()
    clock.failing = True
    clock.now += 80
    assert await _key(credentials) == "key-1" and clock.fetches == 2
    assert await _key(credentials) == "key-1" and clock.fetches == 2, "a pause before the next try"
    clock.now += 11
    outcomes = await asyncio.gather(*(credentials.current() for _ in range(8)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ServiceUnavailableError} and clock.fetches == 3
    clock.failing = False
    assert await _key(credentials) == "key-4"


async def test_refused_keys_are_replaced_once(clock: Clock) -> None:
    credentials = AssumedCredentials(clock.fetch)
    first = await credentials.current()
    others = await asyncio.gather(*(credentials.replace(first) for _ in range(8)))
    assert {keys.access_key for keys in others if keys is not None} == {"key-2"} and clock.fetches == 2


def test_a_session_lifetime_follows_the_server_clock() -> None:
    server = datetime(2031, 1, 1, 12, tzinfo=UTC)
    keys = {
        "AccessKeyId": "a",
        "SecretAccessKey": "s",
        "SessionToken": "t",
        "Expiration": server + timedelta(hours=1),
    }
    answer = {
        "Credentials": keys,
        "ResponseMetadata": {"HTTPHeaders": {"date": format_datetime(server, usegmt=True)}},
    }
    session = assumed_session(answer)
    assert session.lifetime == 3600.0 and session.keys == Keys("a", "s", "t")
    assert "'s'" not in repr(session) and "'t'" not in repr(session)
    undated = {**answer, "ResponseMetadata": {"HTTPHeaders": {}}}
    assert assumed_session(undated).lifetime > 3600
