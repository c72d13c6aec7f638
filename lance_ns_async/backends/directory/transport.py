"""Transport for pylance, a synchronous library, which is called in worker threads."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from typing import TypeVar

import anyio
import lance_namespace.errors as err

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.deadline import remaining
from lance_ns_async.errors import (
    COMMON_ERRORS,
    PHRASES,
    BadLocationError,
    ErrorTable,
    Failure,
    error_for,
    spelled,
    without_source,
)
from lance_ns_async.masked import without_user
from lance_ns_async.model import Id
from lance_ns_async.storage.process_end import REFUSAL, GivenUp
from lance_ns_async.storage.pylance_errors import store_error_class, with_remedy
from lance_ns_async.storage.threads import Work, aside

T = TypeVar("T")

LANCE_ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    **{cls.__name__: cls for cls in (type(err.from_error_code(code, "")) for code in err.ErrorCode)},
}
"""pylance uses the spec's names of errors; any other exception becomes an InternalError."""


_BROKEN = re.compile(r"Too many levels of symbolic links|File system loop found|\[Errno 20\]|kind: NotADirectory")
"""Text in pylance's errors, and in those of the file system, about an entry that is neither a folder nor a file."""


class LanceTransport:
    """Runs calls of pylance in threads; the slots of the policy limit the concurrency."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._limiter: anyio.CapacityLimiter | None = None
        self._writing = asyncio.Lock()
        self._late = 0
        """Number of abandoned write calls that still run in their threads."""

    def repeat_in_thread(self, work: Callable[[], T], *, attempts: int) -> T:
        """Repeats a part of a call's work in its thread; see `Caller.repeat_in_thread`."""
        return self._caller.repeat_in_thread(work, attempts=attempts)

    async def call(self, work: Callable[[], T], *, subject: Id, operation: str, safe: bool = True) -> T:
        """Runs `work` in a thread and returns its result.

        Args:
            subject: The object of the call, for messages.
            operation: The name of the operation, for messages and the error table.
            safe: Whether `work` only reads. Calls that are not safe run one at a time.

        If the call is cancelled or times out, its thread continues. A `safe` call then ends at its next
        `process_end.check_given_up`.
        """
        if "lance" not in sys.modules:
            # The time of an attempt begins after the import, which may take seconds.
            await aside(_import_pylance)
        limiter = self._limiter or self._open()
        attempts: list[Work] = []

        async def send() -> T:
            attempts.append(attempt := Work(f"{operation} {subject}".rstrip(), stoppable=safe))
            try:
                return await attempt.run(work, limiter)
            except GivenUp as e:
                # A call that is still awaited can only be given up by the end of the process.
                raise err.InvalidInputError(f"{operation} {subject}: {REFUSAL}") from e
            except err.ConcurrentModificationError as e:
                # Another client committed to the manifest first, so this call changed nothing.
                name = type(e).__name__
                raise Failure(name, message=_first_line(e), delivered=False, transient=True) from e
            except BadLocationError as e:
                # `deregister_table` needs to distinguish this class; the error table only has its base class.
                phrase = PHRASES[err.InvalidTableStateError]
                raise BadLocationError(f"{phrase}: {spelled(subject)} ({operation}: {e})") from e
            except NotImplementedError as e:
                raise Failure("UnsupportedOperationError", message=_first_line(e), delivered=False) from e
            except (err.LanceNamespaceError, OSError, ValueError, RuntimeError) as e:
                raise _failure(e) from e
            finally:
                attempt.given_up.set()

        if safe:
            if self._late:
                # The reader may have abandoned that write itself, and must see its result.
                await self._turn_to_write(subject, operation)
                self._writing.release()
            return await self._caller.call(send, subject=subject, operation=operation)
        # Concurrent writers of one namespace would only cause commit conflicts.
        await self._turn_to_write(subject, operation)
        try:
            return await self._caller.call(send, subject=subject, operation=operation, safe=False)
        finally:
            if attempts and not attempts[-1].is_over(self._finish_late_write):
                self._late += 1
            else:
                self._writing.release()

    def _finish_late_write(self) -> None:
        self._late -= 1
        self._writing.release()

    async def _turn_to_write(self, subject: Id, operation: str) -> None:
        try:
            async with asyncio.timeout(remaining()):
                await self._writing.acquire()
        except TimeoutError:
            failure = Failure("deadline", message="the operation's time ended while other calls wrote", delivered=False)
            raise error_for(failure, subject, operation, LANCE_ERRORS) from failure

    def _open(self) -> anyio.CapacityLimiter:
        # The caller's slots limit the calls; abandoned threads must not count against new ones.
        self._limiter = anyio.CapacityLimiter(float("inf"))
        return self._limiter


def _import_pylance() -> None:
    import lance  # noqa: F401


def _failure(e: Exception) -> Failure:
    # An error of the spec means that nothing was done, except for the two classes that leave it unknown.
    unknown = err.InternalError, err.ServiceUnavailableError
    is_undone = isinstance(e, err.LanceNamespaceError) and not isinstance(e, unknown)
    # Without a region or credentials, nothing was sent.
    is_undone = is_undone or with_remedy(str(e)) != str(e)
    failure = Failure(code_of(e), message=_first_line(e), delivered=False if is_undone else None)
    failure.is_final = "max_retries:" in str(e)  # The client of the object store has already retried for seconds.
    return failure


def code_of(e: BaseException) -> str:
    """Returns the code in `LANCE_ERRORS` for an error of pylance or of the file system."""
    if isinstance(e, PermissionError):
        return err.PermissionDeniedError.__name__
    if isinstance(e, err.InternalError | OSError | ValueError | RuntimeError):
        if (cls := store_error_class(str(e))) is not None:
            return cls.__name__
        if _BROKEN.search(str(e)):
            return err.InvalidTableStateError.__name__
    return type(e).__name__


def error_of(e: err.LanceNamespaceError, subject: Id, operation: str) -> err.LanceNamespaceError:
    """Returns the error of one object of a call for an error of the spec, as `LanceTransport.call` would raise it."""
    return error_for(Failure(code_of(e), message=_first_line(e), delivered=False), subject, operation, LANCE_ERRORS)


def _first_line(e: BaseException) -> str:
    line = with_remedy(without_user(without_source(str(e))).split("\n", 1)[0])
    # pylance's message begins with the phrase that the error table's message adds, too.
    return line.removeprefix(f"{PHRASES.get(type(e))}: ") if isinstance(e, err.LanceNamespaceError) else line
