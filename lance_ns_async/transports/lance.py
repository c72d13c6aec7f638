"""One wire: pylance, which is synchronous, called in worker threads."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from lance_namespace.errors import (
    ConcurrentModificationError,
    ErrorCode,
    InternalError,
    LanceNamespaceError,
    ServiceUnavailableError,
    from_error_code,
)

from lance_ns_async.errors import COMMON_ERRORS, PHRASES, ErrorTable, Failure, error_for, without_source
from lance_ns_async.model import Id
from lance_ns_async.policy import Caller, remaining

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")

LANCE_ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    **{cls.__name__: cls for cls in (type(from_error_code(code, "")) for code in ErrorCode)},
}
"""pylance names its failures as the spec does; whatever else it raises is an InternalError."""


_CONFLICT = re.compile("Incompatible transaction|[Cc]ommit conflict|Too many concurrent writers")
_COMMITS = 20
"""How often a commit to the manifest is tried, of which pylance writes the whole each time."""


class LanceTransport:
    """Runs calls of pylance in threads, no more at once than the policy's slots."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._limiter: anyio.CapacityLimiter | None = None
        self._writing = asyncio.Lock()
        self._late = 0
        """Calls that write, were given up, and go on in their threads."""

    async def call(self, work: Callable[[], T], *, subject: Id, operation: str, safe: bool = True) -> T:
        """What `work` gives. A call given up goes on in its thread, because nothing can stop it there."""
        limiter = self._limiter or self._open()
        begun: list[_Begun] = []

        async def send() -> T:
            begun.append(thread := _Begun())
            try:
                return await anyio.to_thread.run_sync(
                    partial(thread.run, work), abandon_on_cancel=True, limiter=limiter
                )
            except ConcurrentModificationError as e:
                # Somebody else committed to the manifest first, and nothing of ours is in it.
                name = type(e).__name__
                raise Failure(name, message=_first_line(e), delivered=False, transient=True) from e
            except LanceNamespaceError as e:
                # An error of the spec is an answer: nothing was done, unless it says that nobody knows.
                done = None if isinstance(e, InternalError | ServiceUnavailableError) else False
                raise Failure(_code(e), message=_first_line(e), delivered=done) from e
            except NotImplementedError as e:
                raise Failure("UnsupportedOperationError", message=_first_line(e), delivered=False) from e
            except (OSError, ValueError, RuntimeError) as e:
                raise Failure(_code(e), message=_first_line(e)) from e

        if safe:
            if self._late:
                # Who reads now may have given it up, and wants to know what came of it.
                await self._turn_to_write(subject, operation)
                self._writing.release()
            return await self._caller.call(send, subject=subject, operation=operation)
        # Writers of one namespace would only make each other's commits conflict.
        await self._turn_to_write(subject, operation)
        try:
            return await self._caller.call(send, subject=subject, operation=operation, safe=False)
        finally:
            if begun and not begun[-1].is_over(self._ended):
                self._late += 1
            else:
                self._writing.release()

    def _ended(self) -> None:
        self._late -= 1
        self._writing.release()

    async def _turn_to_write(self, subject: Id, operation: str) -> None:
        try:
            async with asyncio.timeout(remaining()):
                await self._writing.acquire()
        except TimeoutError:
            failure = Failure("deadline", message="its time was over while others wrote", delivered=False)
            raise error_for(failure, subject, operation, LANCE_ERRORS) from failure

    def _open(self) -> anyio.CapacityLimiter:
        # The caller's slots bound the calls; abandoned threads must not use up what bounds new ones.
        self._limiter = anyio.CapacityLimiter(float("inf"))
        return self._limiter


class _Begun:
    """Work in a thread that may be given up, and of which it can be known when it is over."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._state = "waiting"
        self._then: Callable[[], None] | None = None

    def run(self, work: Callable[[], T]) -> T:
        with self._lock:
            if self._state == "over":
                raise RuntimeError("it was given up before it began")
            self._state = "running"
        try:
            return work()
        finally:
            with self._lock:
                self._state = "over"
                then = self._then
            if then is not None:
                # The loop may be closed by now, and then nobody waits for it.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(then)

    def is_over(self, then: Callable[[], None]) -> bool:
        """Whether it is, or will not begin any more; if not, `then` is called on the loop when it is."""
        with self._lock:
            if self._state == "running":
                self._then = then
                return False
            self._state = "over"
            return True


def _code(e: BaseException) -> str:
    # The object store's own client has already tried again by the time it says this.
    return "disconnected" if "error sending request" in str(e) else type(e).__name__


def _first_line(e: BaseException) -> str:
    line = without_source(str(e)).split("\n", 1)[0]
    # pylance begins with the words that ours begins with.
    return line.removeprefix(f"{PHRASES.get(type(e))}: ") if isinstance(e, LanceNamespaceError) else line


class Directory:
    """pylance's directory namespace and the table it keeps its entries in. All of it blocks: call it in threads."""

    def __init__(self, root: str, storage_options: Mapping[str, str] | None) -> None:
        self._root = root
        self._storage_options = dict(storage_options or {})

    @cached_property
    def namespace(self) -> Any:
        """The whole of it: nested namespaces by the manifest, tables at the root by their directories."""
        return self._open(manifest_enabled="true")

    @cached_property
    def flat(self) -> Any:
        """The tables at the root alone, which the manifest does not know."""
        return self._open(manifest_enabled="false")

    def entries(self, predicate: str) -> Sequence[Mapping[str, Any]]:
        """The manifest's rows that fit; none where there is no manifest yet. Costs one open and one scan."""
        try:
            manifest = self._manifest()
        except ValueError as e:
            if "was not found" in str(e):
                return []
            raise
        columns = ["object_id", "location", "metadata"]
        rows: list[Mapping[str, Any]] = manifest.to_table(columns=columns, filter=predicate).to_pylist()
        return rows

    def keep(self, object_id: str, properties: Mapping[str, str]) -> None:
        """Writes an entry's properties, as pylance writes those of tables that it places itself. Costs one commit."""
        told = _quoted(json.dumps(dict(properties)))
        for left in reversed(range(_COMMITS)):
            try:
                self._manifest().update({"metadata": told}, where=f"object_id = {_quoted(object_id)}")
                return
            except OSError as e:
                if not _CONFLICT.search(str(e)):
                    raise
                if not left:
                    raise ConcurrentModificationError(str(e)) from e

    def _manifest(self) -> LanceDataset:
        import lance

        return lance.dataset(f"{self._root}/__manifest", storage_options=self._storage_options or None)

    def _open(self, *, manifest_enabled: str) -> Any:
        from lance.namespace import DirectoryNamespace

        storage = {f"storage.{key}": value for key, value in self._storage_options.items()}
        make: Callable[..., Any] = DirectoryNamespace
        return make(root=self._root, manifest_enabled=manifest_enabled, **storage)


def _quoted(text: str) -> str:
    """The text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
