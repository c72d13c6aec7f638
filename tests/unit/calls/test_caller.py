"""The caller's policy: the repeated calls, and the duration."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import httpx
import lance_namespace.errors as err
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import Failure, failure_of
from lance_ns_async.transports.http.token_sources import RenewedTokens, Token
from tests.fakes import sockets
from tests.fakes.calls import Script, busy, call, caller
from tests.fakes.clock import idle, run, run_past, skipping_timers
from tests.fakes.plain import over, plain
from tests.fakes.sockets import Reply, http
from tests.support.errors import catch

pytestmark = pytest.mark.floors


@pytest.mark.parametrize("retries", [0, 1, 5])
async def test_a_call_is_sent_again_as_often_as_the_policy_says(retries: int) -> None:
    policy = Policy(max_retries=retries, backoff_initial=0.0)
    enough, too_few = Script(*[busy()] * retries), Script(*[busy()] * 9)
    assert await call(caller(policy), enough) == retries + 1
    raised = await catch(err.ServiceUnavailableError, call(caller(policy), too_few))
    assert too_few.sent == retries + 1
    attempts = f"; {retries + 1} attempts" if retries else ""
    assert str(raised.value) == f"Service unavailable: db$t (describe_table: busy{attempts})"


FAILURES = st.builds(
    Failure,
    st.sampled_from(["timeout", "refused", "disconnected", 400, 404, 429, 500, 503, "conflict", "unreadable"]),
    message=st.just("why"),
    delivered=st.sampled_from([True, False, None]),
    transient=st.booleans(),
)


@given(st.lists(FAILURES, max_size=6), st.integers(0, 4), st.booleans())
async def test_only_passing_failures_are_repeated_and_writes_only_if_they_did_nothing(
    failures: list[Failure], retries: int, safe: bool
) -> None:
    passing = {"timeout", "refused", "disconnected", 429, 503}
    attempts = 0
    for failure in failures[: retries + 1]:
        attempts += 1
        if not (failure.transient or failure.codes[0] in passing):
            break
        if not safe and failure.delivered is not False:
            break
    else:
        attempts += len(failures) <= retries
    script, calls = Script(*failures), list[Call]()
    to = caller(Policy(max_retries=retries, backoff_initial=0.0))
    with to.observe(calls.append):
        try:
            assert await call(to, script, safe=safe) == len(failures) + 1
        except err.LanceNamespaceError as e:
            last = failures[attempts - 1]
            assert failure_of(e) is last and last.attempts == attempts
    assert script.sent == attempts
    outcomes = [*(str(failure.codes[0]) for failure in failures), "ok"]
    assert [(c.attempt, c.outcome) for c in calls] == [(i + 1, outcomes[i]) for i in range(attempts)]


def test_a_throttled_call_is_not_spared_for_responses_to_itself() -> None:
    script = Script(Failure(400, message="why", transient=True), *[Failure(429, message="slow down") for _ in range(9)])
    with pytest.raises(err.ThrottlingError, match="3 attempts"):
        run(call(caller(Policy(max_retries=2)), script))


async def test_a_write_that_may_have_acted_says_so() -> None:
    with pytest.raises(err.ServiceUnavailableError, match="busy; whether it took effect is unknown"):
        await call(caller(), Script(busy()), safe=False)
    for delivered in (True, False):
        with pytest.raises(err.InternalError) as raised:
            await call(caller(), Script(Failure(500, message="no", delivered=delivered)), safe=False)
        assert "unknown" not in str(raised.value)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 7.0, 100.0])
@skipping_timers
async def test_a_server_that_asks_to_wait_is_waited_for(seconds: float) -> None:
    started = asyncio.get_running_loop().time()
    failures = [Failure(429, message="slow down", retry_after=seconds, delivered=False)] * 2
    assert await call(caller(), Script(*failures), safe=False) == 3
    assert asyncio.get_running_loop().time() - started == pytest.approx(2 * seconds, abs=0.01)


def test_pauses_grow_and_are_bounded() -> None:
    policy = Policy(max_retries=20, backoff_initial=0.5, backoff_max=2.0, operation_timeout=1e6)

    async def pauses() -> list[float]:
        times: list[float] = []

        async def send() -> None:
            times.append(asyncio.get_running_loop().time())
            raise busy()

        await catch(err.ServiceUnavailableError, call(caller(policy), send))
        return [after - before for before, after in pairwise(times)]

    for _ in range(20):
        result = run(pauses())
        assert len(result) == 20 and result[0] <= 0.51 and result[1] <= 1.01 and max(result) <= 2.01


@pytest.mark.parametrize(
    ("failure", "others", "soon"),
    [
        (busy, True, True),
        (partial(Failure, "disconnected", message="cut"), True, True),
        # It is unknown whether the catalog is reachable.
        (busy, False, False),
        (partial(Failure, 429, message="slow down"), True, True),
        (partial(Failure, 429, message="slow down"), False, False),
        # Calls that lost a race must wait.
        (partial(Failure, 400, message="others were faster", transient=True), True, False),
    ],
)
def test_a_failure_among_successes_is_repeated_soon(failure: Callable[[], Failure], others: bool, soon: bool) -> None:
    async def main() -> float:
        to, hold = caller(Policy(max_retries=3, backoff_initial=1.0)), asyncio.Event()

        async def fail_once() -> int:
            if not hold.is_set():
                await hold.wait()
                raise failure()
            return 1

        failing = asyncio.create_task(call(to, fail_once))
        await asyncio.sleep(0)
        if others:
            assert await call(to, Script()) == 1
        hold.set()
        assert await failing == 1
        return asyncio.get_running_loop().time()

    # The responses took no time, so the pauses are short.
    assert all(run(main()) < 0.1 for _ in range(20)) == soon


@pytest.mark.parametrize("cap", [3, 20])
@skipping_timers
async def test_no_call_is_lost_because_a_catalog_accepts_few_concurrent_calls(cap: int) -> None:
    to, inside = caller(Policy(max_retries=3)), 0

    async def send() -> None:
        nonlocal inside
        if inside >= cap:
            raise busy()
        inside += 1
        await asyncio.sleep(0.02)
        inside -= 1

    await asyncio.gather(*(call(to, send) for _ in range(1000)))


@pytest.mark.parametrize("seconds", [120.0, 1e6, math.inf])
@skipping_timers
async def test_a_wait_longer_than_the_operation_is_not_begun(seconds: float) -> None:
    script = Script(Failure(429, message="slow down", retry_after=seconds))
    raised = await catch(err.ThrottlingError, call(caller(), script))
    assert script.sent == 1 and f"the server asks to wait {seconds:g} s" in str(raised.value)
    assert asyncio.get_running_loop().time() < 1


async def test_a_timeout_of_the_calls_own_is_a_timeout() -> None:
    async def send() -> None:
        raise TimeoutError

    await catch(err.ServiceUnavailableError, call(caller(Policy(max_retries=0)), send), "no answer within")


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_nothing_is_sent_when_the_time_is_over(seconds: float) -> None:
    script, to, calls = Script(), caller(), list[Call]()
    with deadline(seconds), to.observe(calls.append):
        with pytest.raises(
            err.ServiceUnavailableError, match="the operation has no time left, so this call was not sent"
        ):
            await call(to, script, safe=False)
    assert script.sent == 0 and not calls
    assert await call(to, script) == 1


async def test_an_inner_deadline_only_shortens() -> None:
    to, script = caller(), Script()
    with deadline(0), deadline(100), pytest.raises(err.ServiceUnavailableError):
        await call(to, script)
    with deadline(100):
        with deadline(0), pytest.raises(err.ServiceUnavailableError):
            await call(to, script)
        with deadline(None):
            assert await call(to, script) == 1


@skipping_timers
async def test_a_deadline_holds_for_all_calls_together() -> None:
    to = caller(Policy(max_retries=0, operation_timeout=1e6, attempt_timeout=1e6))
    with deadline(60), pytest.raises(err.ServiceUnavailableError, match=r"no answer within [56]\d"):
        await call(to, asyncio.Event().wait)
    with deadline(1e9), pytest.raises(err.ServiceUnavailableError, match=r"no answer within 1e\+06 s"):
        await call(to, asyncio.Event().wait)


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        *((name, -1) for name in ("max_retries", "backoff_initial", "backoff_max")),
        *((name, bad) for name in ("attempt_timeout", "operation_timeout") for bad in (0, -1.0, math.nan)),
        *(("max_in_flight", bad) for bad in (0, -3)),
    ],
)
def test_a_policy_without_sense_is_refused(limit: str, value: float) -> None:
    limits: dict[str, Any] = {limit: value}
    with pytest.raises(err.InvalidInputError, match=f"policy: {limit} is {value}"):
        Policy(**limits)


async def test_a_policy_may_set_no_bounds() -> None:
    assert await call(caller(Policy(attempt_timeout=math.inf, operation_timeout=math.inf)), Script()) == 1


LOST: Mapping[str, Reply] = {
    "truncated": http(headers={"Content-Length": "100"}, then="reset"),
    "cut off": Reply(http(headers={"Content-Length": "100"}).data, "close"),
    "chunk missing": Reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", "close"),
    "head cut off": Reply(b"HTTP/1.1 200 OK\r\nContent-Le", "close"),
    "reset": Reply(then="reset"),
    "closed": Reply(then="close"),
    "another protocol": Reply(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "close"),
}


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_write_whose_answer_is_lost_is_sent_once(how: str, method: str, is_kept: bool) -> None:
    before = [http()] if is_kept else []
    async with sockets.Script(*before, LOST[how]) as server, plain(server.url) as client:
        for _ in before:
            await client.ask()
        with pytest.raises(
            err.ServiceUnavailableError, match=r"the connection was lost: .*whether it took effect is unknown"
        ):
            await client.ask(method, "/t")
    assert server.lines[len(before) :] == [f"{method} /t HTTP/1.1"] and server.connections == 1


@pytest.fixture
def nobody() -> Iterator[str]:
    """Returns a port that is in use, but on which no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_refused_connection_names_the_server_and_is_tried_again(nobody: str, method: str) -> None:
    async with plain(nobody) as client:
        raised = await catch(err.ServiceUnavailableError, client.ask(method))
    text = str(raised.value)
    assert "cannot connect: " in text and f"({nobody}); is the endpoint right and the server up?; 4 attempts" in text
    assert client.outcomes == ["refused"] * 4


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with sockets.Script(Reply(then="hang")) as server, plain(server.url) as client:
        task = asyncio.create_task(client.ask())
        await asyncio.wait_for(server.requested.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.ended.wait(), 10)
        assert await client.ask() == {}
    assert server.connections == 2


async def test_a_slow_answer_is_given_up_and_its_connection_with_it() -> None:
    policy = Policy(max_retries=1, attempt_timeout=30, backoff_initial=0.0)
    async with sockets.Script(Reply(then="hang")) as server, plain(server.url, policy=policy) as client:
        assert await run_past(client.ask(), idle(), 30) == {}
    assert client.outcomes == ["timeout", "ok"] and server.connections == 2


def bearing(*values: str, lifetime: float = 3600) -> tuple[RenewedTokens, list[str]]:
    """Provides tokens of these values in turn, and the fetched ones."""
    fetched: list[str] = []

    async def fetch() -> Token:
        fetched.append(values[len(fetched)])
        return Token(fetched[-1], lifetime)

    return RenewedTokens(fetch), fetched


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_refused_token_is_renewed_once_and_the_request_sent_again(method: str) -> None:
    tokens, fetched = bearing("old", "new")
    async with sockets.Script(http(401)) as server, plain(server.url, tokens=tokens) as client:
        assert await client.ask(method) == {} and await client.ask(method) == {}
    assert [server.header("authorization", i) for i in range(3)] == [["Bearer old"], ["Bearer new"], ["Bearer new"]]
    assert fetched == ["old", "new"]


async def test_a_token_that_is_refused_anew_is_an_error() -> None:
    tokens, fetched = bearing("old", "new")
    async with sockets.Script(http(401), http(401, '{"type": "t", "message": "no"}')) as server:
        async with plain(server.url, tokens=tokens) as client:
            await catch(err.UnauthenticatedError, client.ask(), "no")
    assert len(server.requests) == 2 and fetched == ["old", "new"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        *((http(403), err.PermissionDeniedError), (http(407, ""), err.UnauthenticatedError)),
        (http(407, '{"type": "NotAuthorized", "message": "who?"}'), err.UnauthenticatedError),
    ],
)
async def test_a_token_is_not_renewed_for_what_is_forbidden_or_for_407_of_a_proxy(
    answer: Reply, error: type[err.LanceNamespaceError]
) -> None:
    tokens, fetched = bearing("old")
    async with sockets.Script(answer) as server, plain(server.url, tokens=tokens) as client:
        await catch(error, client.ask())
    assert len(server.requests) == 1 and fetched == ["old"]


@pytest.mark.parametrize("status", [401, 419])
async def test_renewal_is_second_attempt_of_one_call(status: int) -> None:
    """The renewal does not count as a retry, so it also happens without retries, and observers see both attempts."""
    tokens, _ = bearing("old", "new")
    policy = Policy(max_retries=0)
    async with sockets.Script(http(status)) as server, plain(server.url, tokens=tokens, policy=policy) as client:
        assert await client.ask("POST") == {}
    assert [(call.attempt, call.outcome) for call in client.calls] == [(1, str(status)), (2, "ok")]


async def test_attempts_after_renewal_continue_those_before() -> None:
    tokens, fetched = bearing("old", "new")
    policy = Policy(max_retries=2, backoff_initial=0.0)
    answers = [http(503), http(401), http(503), http(503), http(503)]
    async with sockets.Script(*answers) as server, plain(server.url, tokens=tokens, policy=policy) as client:
        await catch(err.ServiceUnavailableError, client.ask(), "4 attempts")
    assert client.outcomes == ["503", "401", "503", "503"] and fetched == ["old", "new"]


async def test_respx_can_stand_in_for_the_wire() -> None:
    router = respx.Router(assert_all_called=True)
    result = router.get("http://catalog.example.com/api/t", params={"a": "1"}).respond(json={"found": True})
    router.delete(path="/api/t").respond(404, json={"type": "NoSuch", "message": "gone"})
    busy = router.post(path="/api/t")
    busy.side_effect = [httpx.ConnectError("no"), httpx.ConnectTimeout("slow"), httpx.Response(200, json=[1])]
    client = over(httpx.MockTransport(router.async_handler))
    assert await client.ask("GET", "/t", query="a=1") == {"found": True}
    await catch(err.TableNotFoundError, client.ask("DELETE", "/t"), r"Table not found: db\$t \(op: HTTP 404: gone\)")
    assert await client.ask("POST", "/t", body={"x": 1}) == [1]
    assert result.call_count == 1 and busy.call_count == 3
    assert json.loads(busy.calls.last.request.content) == {"x": 1}
    await client.http.aclose()


@pytest.mark.parametrize("error", [httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError, httpx.ReadTimeout])
async def test_what_any_wire_loses_is_lost(error: type[httpx.TransportError]) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("gone")

    await catch(err.ServiceUnavailableError, over(httpx.MockTransport(fail)).ask(), "gone; 4 attempts")
