"""Tokens from outside this package: the output of a command, the result of a Python callable, and files."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shlex
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import PurePath
from time import monotonic, time
from typing import Any, Protocol

import anyio
import anyio.to_thread
import orjson
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, UnauthenticatedError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.tasks import SingleFlight
from lance_ns_async.errors import COMMON_ERRORS, ErrorTable, Failure, failure_of
from lance_ns_async.masked import MaskedBytes, MaskedText, bearer_token
from lance_ns_async.model import NamespaceId
from lance_ns_async.settings import TokenFunction
from lance_ns_async.storage.watched_file import WatchedFile
from lance_ns_async.transports.responses import redact

_NOT_STARTED, _FAILURE, _NO_TOKEN = "not started", "failed", "no token"

SOURCE_ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    _NOT_STARTED: InvalidInputError,
    _FAILURE: UnauthenticatedError,
    _NO_TOKEN: InvalidInputError,
}

_MAX_OUTPUT_BYTES = 2**18  # Maximum number of bytes that a command may print; tokens have some thousand.

_MAX_STDERR_LENGTH = 400  # Number of characters of a command's last error messages in the message of a failure.

_SHORTEST_SECRET = 16  # Minimum length of a word of the output that is redacted in error messages.

_KILL_SECONDS = 5.0  # Maximum seconds to wait for the end of a killed command.

_EPOCH = 1e9  # Seconds from which an expiry is a time since 1970 and not a lifetime.

_TOKEN_KEYS = ("access_token", "accessToken", "token")
_LIFETIME_KEYS = ("expires_in", "expiresIn")
_EXPIRY_KEYS = ("expires_on", "expires_at", "expiresOn", "expiresAt", "expiry", "token_expiry", "expiration")


def parse_command(value: object) -> tuple[str, ...]:
    """Returns the program and its arguments, from a list or from a text in the syntax of a POSIX shell."""
    if isinstance(value, str):
        try:
            parts = shlex.split(value)
        except ValueError as e:
            raise ValueError(
                f"not a command, {str(e).lower()}; it is split at blanks, so quote parts with blanks"
            ) from e
    elif isinstance(value, Sequence) and not isinstance(value, bytes) and all(isinstance(part, str) for part in value):
        parts = list(value)
    else:
        raise ValueError("not a command; write e.g. 'gcloud auth print-access-token', or a list of texts")
    if not parts or not parts[0] or any("\0" in part for part in parts):
        raise ValueError("it names no program; write e.g. 'gcloud auth print-access-token'")
    return tuple(parts)


def command_tokens(caller: Caller, command: Sequence[str], seconds: float) -> RenewedTokens:
    """Returns the tokens that a command prints; runs it when a token is needed, without a shell.

    The command inherits the environment of this process, and has no input and no terminal.

    Args:
        command: The program and its arguments.
        seconds: Maximum time of a run, after which the command and the processes that it started are killed.
    """
    label = f"auth_command {PurePath(command[0]).name!r}"
    # An argument may be a secret, and an error message may quote it.
    command = tuple(map(MaskedText, command))

    async def run() -> Token:
        status, output, errors = await _run(command, label)
        if status != 0:
            detail = _last(redact(errors, _words(output, *command))) or "it printed no error message"
            message = f"{label}: exit status {status}: {detail}; run the command in a terminal to check it"
            raise Failure(_FAILURE, message=message)
        try:
            return parse_output(output)
        except ValueError as e:
            # The cause is not attached, because it may quote the output.
            message = f"{label}: {e}; its output must be a token, or JSON with a token and its expiry"
            raise Failure(_NO_TOKEN, message=message) from None

    return RenewedTokens(_fetch_with(caller, run, label, seconds, " (auth_command_timeout)"))


def function_tokens(caller: Caller, function: TokenFunction) -> RenewedTokens:
    """Returns the tokens that a Python callable returns; it is called when a token is needed.

    Args:
        function: Returns a token, or a token and its expiry. If it is no coroutine function, it runs in a worker
            thread, because it may block.
    """
    label = f"token, the callable {getattr(function, '__qualname__', type(function).__qualname__)}"

    async def run() -> Token:
        try:
            result = await _result(function)
        except LanceNamespaceError:
            raise
        except Exception as e:
            raise Failure(_FAILURE, message=f"{label}: {type(e).__name__}: {e}") from e
        try:
            return parse_result(result)
        except ValueError as e:
            message = f"{label}: {e}; it must return a token, or a token and its expiry"
            raise Failure(_NO_TOKEN, message=message) from None

    return RenewedTokens(_fetch_with(caller, run, label, caller.policy.attempt_timeout))


def parse_output(output: bytes) -> Token:
    """Returns the token in the output of a command.

    The output is the token itself, or JSON with `access_token`, `accessToken` or `token`, and with an expiry: the
    seconds left in `expires_in`, or a time in `expires_on`, `expires_at`, `expiresOn`, `expiresAt`, `expiry`,
    `token_expiry` or `expiration`. A time is a number of seconds since 1970, or ISO 8601; without a zone it is local.
    """
    text = output.decode("utf-8", "replace").strip()
    if not text.startswith(("{", '"')):
        return Token(_check_token(text), LIFETIME)
    try:
        body = orjson.loads(text)
    except ValueError:
        raise ValueError("the JSON that it printed is invalid") from None
    if isinstance(body, str):
        return Token(_check_token(body), LIFETIME)
    value = next((body[key] for key in _TOKEN_KEYS if body.get(key)), None)
    if value is None:
        raise ValueError(f"the JSON that it printed has none of the keys {', '.join(_TOKEN_KEYS)}")
    return Token(_check_token(value), _printed_lifetime(body))


def parse_result(result: object) -> Token:
    """Returns the token in the result of a callable: a token, or a token and its expiry.

    The expiry is the number of seconds left, a number of seconds since 1970, a datetime with a time zone, or None.
    """
    if isinstance(result, str):
        return Token(_check_token(result), LIFETIME)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ValueError(f"it returned a {type(result).__name__}")
    value, expiry = result
    return Token(_check_token(value), _lifetime(expiry))


def _fetch_with(
    caller: Caller, run: Callable[[], Awaitable[Token]], label: str, limit: float, advice: str = ""
) -> Callable[[], Awaitable[Token]]:
    """Returns a function that runs a source for at most `limit` seconds."""
    # It runs once, because a command or a callable has its own rules of retrying.
    policy = replace(caller.policy, max_retries=0, hedge_after=None, attempt_timeout=limit + _KILL_SECONDS)
    own = caller.beside(SOURCE_ERRORS, policy)

    async def run_with_limit() -> Token:
        try:
            async with asyncio.timeout(limit):
                return await run()
        except TimeoutError:
            raise Failure("timeout", message=f"{label}: no result within {limit:g} s{advice}") from None

    async def fetch() -> Token:
        return await own.call(run_with_limit, subject=NamespaceId(), operation="fetch_token")

    return fetch


async def _result(function: TokenFunction) -> object:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        result: object = function()
    else:
        result = await anyio.to_thread.run_sync(function, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


async def _run(command: Sequence[str], label: str) -> tuple[int, bytes, str]:
    """Returns the exit status of a command, its output, and the end of its error messages."""
    program = await anyio.to_thread.run_sync(shutil.which, command[0])
    if program is None:
        message = (
            f"{label}: there is no such program, or it is not executable; give its full path, or add its folder to the "
            "PATH of this process"
        )
        raise Failure(_NOT_STARTED, message=message)
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        # A session of its own: programs started by the command end with it, and none can wait for a terminal.
        process = await asyncio.create_subprocess_exec(
            program, *command[1:], stdin=none, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as e:
        message = f"{label}: it cannot be started: {e.strerror or type(e).__name__}; is it a program?"
        raise Failure(_NOT_STARTED, message=message) from None
    try:
        async with asyncio.TaskGroup() as group:
            output = group.create_task(_read(process, process.stdout))
            errors = group.create_task(_read(process, process.stderr))
        status = await process.wait()
    finally:
        await _end(process)
    if max(len(output.result()), len(errors.result())) > _MAX_OUTPUT_BYTES:
        raise Failure(_NO_TOKEN, message=f"{label}: it printed more than {_MAX_OUTPUT_BYTES} bytes")
    return status, output.result(), MaskedText(errors.result().decode("utf-8", "replace"))


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None) -> bytes:
    """Returns what a process writes; kills it if this is too much, and then returns the beginning."""
    data = bytearray()
    while stream is not None and (chunk := await stream.read(2**16)):
        data += chunk
        if len(data) > _MAX_OUTPUT_BYTES:
            _kill(process)
            break
    return MaskedBytes(data)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Releases a process; kills it, with the programs that it started, if it runs."""
    if process.returncode is None:
        _kill(process)
        # The wait is bounded, because a process can be stuck in the kernel.
        with anyio.move_on_after(_KILL_SECONDS, shield=True):
            await process.wait()
    # asyncio closes the pipes only at their end, which a program outside of the session can delay.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        # Its number may belong to another process by now.
        return
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _check_token(value: object) -> str:
    value = bearer_token(value) if isinstance(value, str) else None
    if not value:
        raise ValueError("there is no token in its result")
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise ValueError("its result is more than a token, or no token: a token is one word of printable ASCII")
    return value


def _printed_lifetime(body: Mapping[str, Any]) -> float:
    key = next((key for key in (*_LIFETIME_KEYS, *_EXPIRY_KEYS) if body.get(key) is not None), None)
    if key is None:
        return LIFETIME
    value = body[key]
    try:
        if isinstance(value, str) and not re.fullmatch(r"\s*[0-9.]+\s*", value):
            # The Azure CLI prints a local time without a zone.
            return _lifetime(datetime.fromisoformat(value.strip()).astimezone())
        number = float(value)
        return number - time() if key in _EXPIRY_KEYS else number
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{key} in the JSON that it printed is neither a number of seconds nor a time") from None


def _lifetime(expiry: object) -> float:
    """Returns the seconds until an expiry; the default for None."""
    if expiry is None:
        return LIFETIME
    if isinstance(expiry, datetime):
        if expiry.tzinfo is None:
            raise ValueError("the datetime of its expiry has no time zone; write e.g. expiry.replace(tzinfo=UTC)")
        return (expiry - datetime.now(UTC)).total_seconds()
    try:
        if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not isfinite(seconds := float(expiry)):
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError("its expiry is neither a number of seconds nor a datetime") from None
    return seconds - time() if seconds > _EPOCH else seconds


def _words(output: bytes, *arguments: str) -> Sequence[str]:
    """Returns the parts of a run that may be secrets, longest first; shorter words occur in ordinary messages."""
    parts = re.split(r'[\s",:{}]+', " ".join((*arguments[1:], output.decode("utf-8", "replace"))))
    return sorted((part for part in parts if len(part) >= _SHORTEST_SECRET), key=len, reverse=True)


def _last(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_STDERR_LENGTH else f"...{text[-_MAX_STDERR_LENGTH:]}"


LIFETIME = 3600.0
"""Default lifetime in seconds of a token of unknown lifetime."""

_USED = 0.8
"""Fraction of its lifetime for which a token is used; the rest allows for the renewal and for clock differences."""


class Tokens(Protocol):
    """Source of the bearer token for the next request."""

    async def current(self) -> str:
        """Returns a token that is expected to be valid."""
        ...

    async def replace(self, old: str) -> str:
        """Returns a token that replaces `old`, which the server rejected."""
        ...


class FileTokens:
    """Tokens in a file that another program replaces."""

    def __init__(self, path: str) -> None:
        self._file = WatchedFile("auth_token_file", path, parse_token)

    async def current(self) -> str:
        """Returns the token; looks at the file at most once a second."""
        return self._file.value()

    async def replace(self, old: str) -> str:
        """Returns the token that replaces `old`; looks at the file at once unless another caller has read it."""
        return self._file.value(now=self._file.value() == old)


def parse_secret(content: bytes, noun: str = "secret") -> MaskedText:
    """Returns the secret in a file, without the newline at the end; `noun` says in messages what it is."""
    try:
        text = MaskedText(content.decode().removesuffix("\n").removesuffix("\r"))
    except UnicodeDecodeError:
        raise ValueError(f"not UTF-8; write nothing but the {noun} to it") from None
    if not text:
        raise ValueError(f"empty; write the {noun} to it")
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark; save it as UTF-8 without one")
    if text.splitlines() != [text]:
        raise ValueError(f"more than one line; write nothing but the {noun} to it")
    return text


def parse_token(content: bytes) -> MaskedText:
    """Returns the bearer token in a file, without the newline at the end."""
    if not (token := bearer_token(parse_secret(content, "token"))):
        raise ValueError("empty; write the token to it")
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("more than a token, or no token; write one word of printable ASCII to it")
    return token


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and its lifetime in seconds; infinity means until the server rejects it."""

    value: str = field(repr=False)
    lifetime: float
    refresh_token: str | None = field(default=None, repr=False)
    """The token of OAuth2's refresh grant that the server returned with it; None if it returned none."""


class RenewedTokens:
    """Tokens from `fetch`; concurrent callers share one fetch."""

    def __init__(self, fetch: Callable[[], Awaitable[Token]]) -> None:
        self._fetch = fetch
        self._renewal = SingleFlight(self._renew)
        self._value = MaskedText()
        self._until = 0.0

    async def current(self) -> str:
        """Returns the current token, or a new one if it is about to expire."""
        return self._valid_token() or await self._renewal.outcome(self._valid_token)

    async def replace(self, old: str) -> str:
        """Returns the token that replaces `old`; fetches it unless another caller has already done so."""
        return await self._renewal.outcome(lambda: None if self._value == old else self._valid_token())

    def _valid_token(self) -> str | None:
        return self._value if monotonic() < self._until else None

    async def _renew(self) -> str:
        try:
            token = await self._fetch()
        except LanceNamespaceError as e:
            # Whatever the result of the fetch, the call that needed the token was not sent.
            if (failure := failure_of(e)) is not None:
                failure.delivered = False
            raise
        self._value = MaskedText(token.value)
        self._until = monotonic() + _USED * token.lifetime
        return self._value
