"""Commits that an Iceberg REST catalog recognizes by their `Idempotency-Key`, so that they may be sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.shared.iceberg_wire import new_key, routes
from tests.fakes.iceberg import FakeIceberg
from tests.support.errors import catch

DECLARE = {"id": ["a", "t"], "location": "s3://bucket/t"}
IN_PROGRESS = {"message": "in progress", "type": "Conflict", "code": 409, "subtype": "request_in_progress"}


@asynccontextmanager
async def connected(server: FakeIceberg, **more: str) -> AsyncIterator[AsyncNamespace]:
    quick = {"backoff_initial": "1ms", "backoff_max": "2ms"}
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, **quick, **more}) as ns:
        yield ns


def keeping(lifetime: str | None = "PT30M") -> FakeIceberg:
    server = FakeIceberg(key_lifetime=lifetime)
    server.add_namespace(("a",))
    return server


def keys(server: FakeIceberg) -> list[str | None]:
    return [request.headers.get("Idempotency-Key") for request in server.requests if request.method == "POST"]


async def test_a_declaration_whose_answer_is_lost_is_sent_again_with_its_key() -> None:
    with keeping() as server:
        server.cut(match="POST", when="after", times=2)
        async with connected(server) as ns:
            assert (await ns.declare_table(DECLARE)).location == "s3://bucket/t"
            # Without a key, the table would be described after the lost response.
            assert [request.method for request in server.requests] == ["GET", *["POST"] * 3]
            await catch(err.TableAlreadyExistsError, ns.declare_table(DECLARE))
        first, *again, other = keys(server)
        assert first and again == [first] * 2 and other != first


async def test_a_replacement_has_a_key_too() -> None:
    with keeping() as server:
        server.add_table(("a",), "t")
        async with connected(server) as ns:
            server.cut(match="POST", when="after")
            request = {"id": ["a", "t"], "location": "s3://bucket/new", "mode": "Overwrite"}
            assert (await ns.register_table(request)).location == "s3://bucket/new"
        first, again = keys(server)
        assert first and again == first


async def test_an_attempt_in_progress_is_waited_for() -> None:
    with keeping() as server:
        server.fail(409, match="POST", body={"error": IN_PROGRESS})
        async with connected(server) as ns:
            assert (await ns.declare_table(DECLARE)).location == "s3://bucket/t"
        first, again = keys(server)
        assert first == again


@pytest.mark.parametrize("lifetime", [None, "PT1M", "soon"])
async def test_no_key_without_support_for_the_time_of_an_operation(lifetime: str | None) -> None:
    with keeping(lifetime) as server:
        server.cut(match="POST", when="after")
        async with connected(server) as ns:
            assert (await ns.declare_table(DECLARE)).location == "s3://bucket/t"
        assert keys(server) == [None]


async def test_a_call_that_fails_to_the_end_is_looked_up() -> None:
    with keeping() as server:
        server.cut(match="POST", times=None)
        async with connected(server, max_retries="2") as ns:
            await catch(err.ServiceUnavailableError, ns.declare_table(DECLARE), "whether it took effect is unknown")
        assert len(set(keys(server))) == 1 and len(keys(server)) == 3


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("PT30M", 1800), ("P1DT2H3M4.5S", 93784), ("PT24H", 86400), ("P1M", None), ("", None), (5, None), (None, None)],
)
def test_durations(duration: object, seconds: float | None) -> None:
    assert routes({"idempotency-key-lifetime": duration}).key_lifetime == seconds


def test_keys_are_ordered_uuids_of_version_7() -> None:
    assert {UUID(new_key()).version for _ in range(100)} == {7}
    assert {UUID(new_key()).variant for _ in range(100)} == {UUID(int=0x8 << 60).variant}
    assert new_key() != new_key()
