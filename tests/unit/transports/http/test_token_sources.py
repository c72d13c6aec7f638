"""Tokens of commands and callables: valid results, and messages of failures."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any

import anyio.to_thread
import lance_namespace.errors as err
import orjson
import pytest

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import HTTP_ERRORS, failure_of
from lance_ns_async.transports.http import token_sources as sources
from tests.support.errors import catch

TOKEN = "hush-hush-4711-0815"


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return sys.executable, "-c", code, *arguments


def command(*parts: str, seconds: float = 30.0) -> sources.RenewedTokens:
    return sources.command_tokens(Caller(Policy(), HTTP_ERRORS), parts, seconds)


def function(result: Callable[[], Any]) -> sources.RenewedTokens:
    return sources.function_tokens(Caller(Policy(), HTTP_ERRORS), result)


async def error_of(tokens: sources.RenewedTokens) -> err.LanceNamespaceError:
    """Returns the error of the first token, after a check that it contains no token, and that the call was not sent."""
    raised = await catch(err.LanceNamespaceError, tokens.current())
    assert TOKEN not in "".join(traceback.format_exception(raised.value))
    failure = failure_of(raised.value)
    assert failure is None or failure.delivered is False
    return raised.value


HOUR = timedelta(hours=1)


def in_an_hour(**change: Any) -> str:
    return (datetime.now() + HOUR).isoformat(sep=" ", **change)


@pytest.mark.parametrize(
    ("make_output", "lifetime"),
    [
        *((it, sources.LIFETIME) for it in (lambda: f"{TOKEN}\n", lambda: f"\r\n {TOKEN} \r\n")),
        *((it, sources.LIFETIME) for it in (lambda: f'"{TOKEN}"\n', lambda: {"token": TOKEN})),
        (lambda: {"access_token": TOKEN, "expires_in": 60}, 60.0),
        (lambda: {"access_token": TOKEN, "expires_in": "60"}, 60.0),
        (lambda: {"access_token": TOKEN, "token_type": "Bearer", "expires_in": None}, sources.LIFETIME),
        # az account get-access-token
        (lambda: {"accessToken": TOKEN, "expiresOn": in_an_hour(), "expires_on": int(time()) + 3600}, 3600.0),
        (lambda: {"accessToken": TOKEN, "expiresOn": in_an_hour(timespec="microseconds"), "tenant": "t"}, 3600.0),
        # databricks auth token
        (lambda: {"access_token": TOKEN, "expiry": (datetime.now(UTC) + HOUR).isoformat()}, 3600.0),
        (lambda: {"token": TOKEN, "expires_at": f"{datetime.now(UTC) + HOUR:%Y-%m-%dT%H:%M:%SZ}"}, 3600.0),
    ],
)
def test_tokens_that_commands_print(make_output: Callable[[], str | dict[str, Any]], lifetime: float) -> None:
    # Created here and not at collection; otherwise the times would be past when the test runs.
    output = make_output()
    result = sources.parse_output(output.encode() if isinstance(output, str) else orjson.dumps(output))
    assert result.value == TOKEN and result.lifetime == pytest.approx(lifetime, abs=60)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        *((b"", "there is no token in its result"), (b" \n", "there is no token in its result")),
        (f"token: {TOKEN}".encode(), "a token is one word of printable ASCII"),
        (f"{TOKEN}\n{TOKEN}".encode(), "a token is one word"),
        *((f"{TOKEN}é".encode(), "a token is one word"), (b"\xff", "a token is one word")),
        (f'{{"token": "{TOKEN}"'.encode(), "the JSON that it printed is invalid"),
        (f'{{"id_token": "{TOKEN}"}}'.encode(), "none of the keys access_token, accessToken, token"),
        (f'{{"token": ["{TOKEN}"]}}'.encode(), "there is no token"),
        (f'{{"token": "{TOKEN}", "expiry": "{TOKEN}"}}'.encode(), "expiry .* neither a number of seconds nor a time"),
        (f'{{"token": "{TOKEN}", "expires_in": []}}'.encode(), "expires_in .* neither a number"),
    ],
)
def test_output_that_is_no_token(output: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        sources.parse_output(output)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    ("make_result", "lifetime"),
    [
        *((lambda: TOKEN, sources.LIFETIME), (lambda: (TOKEN, None), sources.LIFETIME), (lambda: (TOKEN, 60), 60.0)),
        *((lambda: f"Bearer {TOKEN}", sources.LIFETIME), (lambda: (TOKEN, 0.5), 0.5)),
        (lambda: (TOKEN, int(time()) + 600), 600.0),
        (lambda: (TOKEN, datetime.now(UTC) + timedelta(minutes=10)), 600.0),
    ],
)
def test_results_of_callables(make_result: Callable[[], object], lifetime: float) -> None:
    result = sources.parse_result(make_result())
    assert result.value == TOKEN and result.lifetime == pytest.approx(lifetime, abs=60)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        *((None, "it returned a NoneType"), (TOKEN.encode(), "it returned a bytes")),
        *(((TOKEN,), "it returned a tuple"), ("", "there is no token"), ((TOKEN, "soon"), "its expiry is neither")),
        *(((TOKEN, True), "its expiry is neither"), ((TOKEN, float("nan")), "its expiry is neither")),
        ((TOKEN, 10**400), "its expiry is neither"),
        ((TOKEN, datetime.now()), "has no time zone; write e.g. expiry.replace"),
        (f"Basic {TOKEN}", "one word"),
    ],
)
async def test_results_that_are_no_token(result: object, message: str) -> None:
    error = await error_of(function(lambda: result))
    assert isinstance(error, err.InvalidInputError)
    with pytest.raises(ValueError, match=message):
        sources.parse_result(result)
    assert "the catalog (fetch_token: token, the callable test_results_that_are_no_token" in str(error)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((text, "empty; write the token to it") for text in (b"", b"\r\n", b"Bearer \n", b"bearer")),
        *((f"{TOKEN}\n{TOKEN}".encode(), "more than one line"), (f"{TOKEN} x".encode(), "write one word")),
        *((b"\xef\xbb\xbfx", "save it as UTF-8 without one"), (b"\xff", "not UTF-8; .* but the token")),
        (b"a" * (4 * 2**20 + 1), "larger than 4194304 bytes"),
        (None, "Is a directory; give a file"),
    ],
)
async def test_files_without_a_token(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path if content is None else tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    raised = await catch(err.InvalidInputError, sources.FileTokens(str(path)).current(), message)
    assert f"auth_token_file '{path}': " in str(raised.value) and TOKEN not in str(raised.value)


async def test_callables_of_every_kind() -> None:
    class Source:
        async def __call__(self) -> str:
            return f"{TOKEN}-object"

        def method(self) -> str:
            return f"{TOKEN}-method"

    async def coroutine() -> tuple[str, int]:
        return TOKEN, 60

    assert await function(coroutine).current() == TOKEN
    assert await function(lambda: coroutine()).current() == TOKEN
    assert await function(Source()).current() == f"{TOKEN}-object"
    assert await function(Source().method).current() == f"{TOKEN}-method"


async def test_a_callable_that_blocks_does_not_block_the_loop() -> None:
    loop = asyncio.get_running_loop()

    def blocking() -> str:
        # Only the event loop can run this coroutine, so it must be free.
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0, TOKEN), loop).result(10)

    assert await function(blocking).current() == TOKEN


async def test_errors_of_a_callable() -> None:
    def fail() -> str:
        raise RuntimeError("no ticket")

    def deny() -> str:
        raise err.PermissionDeniedError("not you")

    error = await error_of(function(fail))
    assert isinstance(error, err.UnauthenticatedError) and ".fail: RuntimeError: no ticket)" in str(error)
    assert str(await error_of(function(deny))) == "not you"


async def test_a_command_gets_arguments_as_they_are_and_no_input() -> None:
    code = "import sys; print(sys.argv[1] + str(len(sys.stdin.read())) + str(len(sys.argv)))"
    assert await command(*python(code, "$HOME;*")).current() == "$HOME;*02"


async def test_a_command_runs_once_for_all_and_again_after_a_rejection(tmp_path: Path) -> None:
    code = "import sys; f = open(sys.argv[1], 'a+'); f.write('x'); f.seek(0); print('token-' + f.read())"
    tokens = command(*python(code, str(tmp_path / "runs")))
    assert await asyncio.gather(*(tokens.current() for _ in range(64))) == ["token-x"] * 64
    assert await asyncio.gather(*(tokens.replace("token-x") for _ in range(64))) == ["token-xx"] * 64


@pytest.mark.parametrize(
    ("parts", "cls", "message"),
    [
        (("/no/such/program", TOKEN), err.InvalidInputError, "auth_command 'program': there is no such program"),
        (("no-such-program-4711",), err.InvalidInputError, "add its folder to the PATH of this process"),
        (("/",), err.InvalidInputError, "or it is not executable"),
        (
            python(f"import sys; print('{TOKEN}'); sys.exit('Please run az login')"),
            err.UnauthenticatedError,
            r"exit status 1: Please run az login; run the command in a terminal",
        ),
        (
            python(f"import sys; print('{TOKEN}'); sys.exit('trace: ' + 'x' * 5000 + ' {TOKEN} end')"),
            err.UnauthenticatedError,
            r"exit status 1: \.\.\.x{300,400} \*\*\* end;",
        ),
        (python("raise SystemExit(3)"), err.UnauthenticatedError, "exit status 3: it printed no error message"),
        (python(f"print('token {TOKEN}')"), err.InvalidInputError, "its output must be a token, or JSON"),
        (python("print('x' * 10**6)"), err.InvalidInputError, "it printed more than 262144 bytes"),
        (python("import sys\nwhile True: sys.stderr.write('x' * 1000)"), err.InvalidInputError, "it printed more than"),
    ],
)
async def test_failures_of_a_command(parts: tuple[str, ...], cls: type[Exception], message: str) -> None:
    error = await error_of(command(*parts))
    assert isinstance(error, cls)
    with pytest.raises(cls, match=message):
        raise error


async def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    (script := tmp_path / "script").write_text("no interpreter\n")
    script.chmod(0o700)
    error = await error_of(command(str(script)))
    assert isinstance(error, err.InvalidInputError) and "auth_command 'script': it cannot be started" in str(error)


_CHILD = "import sys, threading; f = open(sys.argv[1], 'w'); f.write('x'); f.flush(); threading.Event().wait()"
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_CHILD!r}, sys.argv[1]])"


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Returns a pipe that ends when all programs that have opened it for writing have ended."""
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


async def test_a_command_that_takes_too_long_is_killed_with_its_children(fifo: Path) -> None:
    tokens = command(*python(_PARENT, str(fifo)), seconds=1.0)
    async with asyncio.TaskGroup() as group:
        end = group.create_task(anyio.to_thread.run_sync(fifo.read_bytes))
        error = group.create_task(error_of(tokens))
    assert isinstance(error.result(), err.ServiceUnavailableError)
    assert "no result within 1 s (auth_command_timeout)" in str(error.result()) and end.result() == b"x"


async def test_a_cancelled_caller_kills_the_command(fifo: Path) -> None:
    run = asyncio.create_task(command(*python(_PARENT, str(fifo))).current())

    def read() -> bytes:
        with fifo.open("rb") as pipe:
            begin = pipe.read(1)
            loop.call_soon_threadsafe(run.cancel)
            return begin + pipe.read()

    loop = asyncio.get_running_loop()
    assert await anyio.to_thread.run_sync(read) == b"x"
    await catch(asyncio.CancelledError, run)


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("gcloud auth print-access-token", ("gcloud", "auth", "print-access-token")),
        ("'/opt/my tool/run' --x 'a b'", ("/opt/my tool/run", "--x", "a b")),
        (["a", "b c"], ("a", "b c")),
        (("a",), ("a",)),
    ],
)
def test_commands(value: object, parts: tuple[str, ...]) -> None:
    assert sources.parse_command(value) == parts


@pytest.mark.parametrize("value", [None, 5, b"a", [], [""], "", ["a", 5], "'hush", ["a\0hush"], {"hush": 1}])
def test_what_is_no_command(value: object) -> None:
    with pytest.raises(ValueError, match=r"not a command|names no program") as raised:
        sources.parse_command(value)
    assert "hush" not in str(raised.value)


class Endpoint:
    """Issues `1`, `2` ... as tokens; first fails a number of times."""

    def __init__(self, *failures: BaseException, lifetime: float = 3600.0) -> None:
        self.failures = list(failures)
        self.lifetime = lifetime
        self.fetches = 0
        self.most = 0
        self.name: Callable[[int], str] = str
        self._inside = 0

    async def __call__(self) -> sources.Token:
        self.fetches += 1
        number = self.fetches
        self._inside += 1
        self.most = max(self.most, self._inside)
        try:
            await asyncio.sleep(0)
            if self.failures:
                raise self.failures.pop(0)
            return sources.Token(self.name(number), self.lifetime)
        finally:
            self._inside -= 1


async def at_once(ask: Callable[[], Awaitable[str]], callers: int = 100) -> list[str | BaseException]:
    return await asyncio.gather(*(ask() for _ in range(callers)), return_exceptions=True)


async def test_callers_share_one_fetch() -> None:
    endpoint = Endpoint()
    tokens = sources.RenewedTokens(endpoint)
    assert endpoint.fetches == 0
    assert await at_once(tokens.current) == ["1"] * 100
    assert await at_once(lambda: tokens.replace("1")) == ["2"] * 100
    # Somebody has renewed it meanwhile.
    assert await tokens.replace("1") == await tokens.current() == "2"
    assert (endpoint.fetches, endpoint.most) == (2, 1)


async def test_an_endpoint_that_gives_the_same_again_is_called_once_by_all() -> None:
    endpoint = Endpoint()
    endpoint.name = lambda number: "same"
    tokens = sources.RenewedTokens(endpoint)
    await tokens.current()
    assert await at_once(lambda: tokens.replace("same")) == ["same"] * 100
    assert endpoint.fetches == 2
    assert await tokens.replace("same") == "same" and endpoint.fetches == 3


@pytest.mark.parametrize("lifetime", [0.0, -1.0])
async def test_an_expired_new_token_is_used_by_waiting_callers_only(lifetime: float) -> None:
    endpoint = Endpoint(lifetime=lifetime)
    tokens = sources.RenewedTokens(endpoint)
    assert await at_once(tokens.current) == ["1"] * 100 and endpoint.fetches == 1
    assert await tokens.current() == "2"


@pytest.mark.parametrize(("lifetime", "is_kept"), [(1e-9, False), (60.0, True), (10.0, True), (1e9, True)])
async def test_a_token_is_kept_while_it_lives(lifetime: float, is_kept: bool) -> None:
    tokens = sources.RenewedTokens(Endpoint(lifetime=lifetime))
    await tokens.current()
    await asyncio.sleep(0)
    assert await tokens.current() == ("1" if is_kept else "2")


async def test_a_failure_is_shared_by_those_who_waited_and_the_next_asks_again() -> None:
    refused = err.UnauthenticatedError("Unauthenticated: the catalog (fetch_token: invalid_client)")
    endpoint = Endpoint(refused)
    tokens = sources.RenewedTokens(endpoint)
    failed = await at_once(tokens.current)
    assert {(type(e), str(e)) for e in failed} == {(err.UnauthenticatedError, str(refused))}
    assert len({id(e) for e in failed}) == 100, "a shared exception would gather everybody's traceback"
    assert endpoint.fetches == 1
    assert await at_once(tokens.current) == ["2"] * 100 and endpoint.fetches == 2


async def test_a_failed_renewal_leaves_the_old_token_to_who_does_not_know_better() -> None:
    endpoint = Endpoint()
    tokens = sources.RenewedTokens(endpoint)
    await tokens.current()
    endpoint.failures.append(err.ServiceUnavailableError("Service unavailable: the catalog"))
    failed = await at_once(lambda: tokens.replace("1"))
    assert {type(e) for e in failed} == {err.ServiceUnavailableError} and endpoint.fetches == 2
    assert await tokens.current() == "1" and await tokens.replace("1") == "3"
