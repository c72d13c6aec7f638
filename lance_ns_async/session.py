"""An open catalog: the backend, its limits, the checks before each operation, and the access to datasets."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from hashlib import sha256
from inspect import iscoroutinefunction
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableColumnNotFoundError

from lance_ns_async import registry
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls import request_headers
from lance_ns_async.calls.caller import Caller, on_open
from lance_ns_async.calls.deadline import operation_end
from lance_ns_async.calls.policy import Policy
from lance_ns_async.calls.steps import next_step
from lance_ns_async.engine.list import Lister
from lance_ns_async.engine.locate import Locator
from lance_ns_async.engine.walk import Tree
from lance_ns_async.errors import error_about, reduce_to_lines, suggest
from lance_ns_async.lifecycle import concurrent_changes
from lance_ns_async.lifecycle.staging import Staging
from lance_ns_async.model import MAX_LEVELS, NamespaceId, Table, TableId, local_path
from lance_ns_async.settings import Settings, conceal, reveal
from lance_ns_async.storage import guard
from lance_ns_async.storage.datasets import LATEST, Snapshot
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.sql_bounds import Texts
from lance_ns_async.storage.threads import aside, in_thread

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance_namespace import LanceNamespace

C = TypeVar("C", bound=type)
P = ParamSpec("P")
T = TypeVar("T")

_SECRET_DIGEST_KEY = os.urandom(16)
_running_loop = asyncio._get_running_loop  # noqa: SLF001  # Returns None outside of asyncio, for example on trio.


class Session:
    """What all operations on one catalog share; it belongs to the event loop of its first use.

    `backend`, `caller`, `locator` and `opener` are for the operations. None of them checks whether the session is open:
    use them within `operation()`, `changing()` or `within()`.
    """

    def __init__(
        self,
        backend: Backend,
        caller: Caller,
        opener: Opener,
        *,
        id: str,
        root: str | None = None,
        drop_retention: float = 0,
    ) -> None:
        """Creates a session; see `open_catalog`.

        Args:
            backend: The catalog.
            caller: Makes the calls of the backend.
            opener: Opens the datasets of tables.
            id: The id of the catalog, without secrets.
            root: The configured root of default locations; None if there is none.
            drop_retention: Seconds for which a dropped table can be brought back; 0 deletes its data at once.
        """
        self.backend = backend
        self.caller = caller
        self.locator: Locator = Locator(backend)
        self.opener = opener
        self.id = id
        self.root = root
        self.drop_retention = drop_retention
        can = backend.capabilities
        self._depths = range(can.min_depth, MAX_LEVELS if can.max_depth is None else can.max_depth + 1)
        """The depths of namespaces with tables, so that the check of an id is short."""
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the first use, which the connections and locks belong to; None before that."""

    @property
    def catalog(self) -> str:
        """A text that identifies the catalog in every process."""
        # The digest at the end of the id differs between processes.
        return self.id.rpartition("#")[0]

    async def aclose(self) -> None:
        """Releases connections, threads and caches; may be called twice. Open datasets stay open."""
        own, running = self._loop, _running_loop()
        if own is not None and running is not None and own is not running and own.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), own))
        else:
            self.check_loop()
            await self._close()
        self.opener.close()

    async def _close(self) -> None:
        self._is_closed = True
        self.locator.forget()
        await self.backend.aclose()

    def request_scope(self) -> AbstractContextManager[None]:
        """Limits the headers that a request brings, such as its identity, to one operation."""
        allowed = self.backend.takes_request_headers
        # Without headers there is nothing to limit, unless an operation of another catalog has made this call.
        is_needed = allowed or request_headers.headers.get() is not None
        return request_headers.scope(allowed=allowed) if is_needed else nullcontext()

    def operation(self) -> AbstractContextManager[None]:
        """Checks that the session is usable, and limits the time of an operation by the policy."""
        return self.within(self.caller.policy.operation_timeout)

    @contextmanager
    def changing(self, *ids: TableId) -> Iterator[None]:
        """Limits an operation that changes the registrations of tables, which are then located anew; none means all."""
        with self.operation():
            try:
                yield
            finally:
                self.locator.forget(*ids)

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Checks that the session is usable, and limits the time of an operation; None means no limit."""
        until = operation_end.get()
        if seconds is not None:
            if not seconds > 0:
                raise InvalidInputError(f"timeout {seconds}: must be a number of seconds above 0, or None for no limit")
            end = monotonic() + seconds
            until = end if until is None else min(until, end)
        if self._is_closed or self._loop is None or self._loop is not _running_loop():
            self.check_open()
            self.check_loop()
        # As `deadline` does, but with fewer steps, because each operation passes here.
        outer = operation_end.set(until)
        try:
            yield
        except LanceNamespaceError as e:
            reduce_to_lines(e)
            raise
        finally:
            operation_end.reset(outer)

    def check_open(self) -> None:
        """Raises InvalidInputError if the session is closed."""
        if self._is_closed:
            raise InvalidInputError(f"namespace {self.id}: it is closed; connect anew")

    def check_loop(self) -> None:
        """Raises InvalidInputError if the running event loop is not the one of the first use."""
        if (running := _running_loop()) is None:
            raise InvalidInputError(
                f"namespace {self.id}: an AsyncNamespace runs on asyncio only; with trio, call the methods of a "
                "Namespace by trio.to_thread.run_sync"
            )
        if self._loop is running:
            return
        if self._loop is not None:
            hint = ", which has ended" if self._loop.is_closed() else ""
            raise InvalidInputError(
                f"namespace {self.id}: it was first used in another event loop{hint}; connect, use and close an "
                "AsyncNamespace in one loop, or use a Namespace, which any thread and loop may call"
            )
        self._loop = running

    def namespace(self, names: Iterable[str] | None) -> NamespaceId:
        """Returns a valid id of a namespace; None means the root."""
        id = names if isinstance(names, NamespaceId) else NamespaceId(names or ())
        self.backend.capabilities.check_namespace(id)
        return id

    def table(self, names: Iterable[str] | None) -> TableId:
        """Returns a valid id of a table."""
        id = names if isinstance(names, TableId) else TableId(names or ())
        if len(id) - 1 not in self._depths:
            self.backend.capabilities.check_table(id)
        return id

    async def with_credentials(self, table: Table) -> Table:
        """Returns the table with the credentials that its catalog vends. Cost: one call, none for a local table."""
        if self.backend.capabilities.vends and local_path(table.location) is None:
            return await self.locator.locate(table.id)
        return table

    async def vend(self, table: Table) -> Table:
        """Does the same for work that is no operation of its own."""
        with self.operation():
            return await self.with_credentials(table)

    def workers(self, max_in_flight: int | None = None) -> int:
        """Returns the number of concurrent calls; None, or more than the policy allows, means the policy's limit."""
        if max_in_flight is not None and max_in_flight < 1:
            raise InvalidInputError(f"max_in_flight {max_in_flight}: must be at least 1")
        limit = self.caller.policy.max_in_flight
        return limit if max_in_flight is None else min(max_in_flight, limit)

    def lister(self) -> Lister:
        """Returns the lister of tables, with the policy's number of concurrent calls."""
        return Lister(self.backend, max_in_flight=self.workers())

    def tree(self, start: Iterable[str] | None) -> Tree:
        """Returns the subtree below a namespace; None means the root."""
        self.check_open()
        return Tree(self.backend, self.namespace(start), max_in_flight=self.workers())

    def staging(self) -> Staging:
        """Returns the `Staging` with which other processes, for example Spark executors, write files of tables."""
        return Staging(self.backend, self.opener, self.changing)

    async def check_sql(self, texts: Texts) -> None:
        """Raises InvalidInputError for SQL texts that are too complex for Lance; long texts are checked in a thread."""
        request_guard = guard.current()
        if texts.is_small:
            request_guard.check_sql(texts)
            return
        with self.operation():
            await aside(lambda: request_guard.check_sql(texts), "texts")

    async def read(
        self, id: Iterable[str] | None, work: Callable[[LanceDataset, Table], T], snapshot: Snapshot = LATEST
    ) -> T:
        """Returns the result of `work` on a snapshot of a table's dataset, in a worker thread."""
        return await self._locate_and_run(id, work, snapshot, changes=False)

    async def change(
        self, id: Iterable[str] | None, work: Callable[[LanceDataset, Table], T], snapshot: Snapshot = LATEST
    ) -> T:
        """Returns the result of `work`, which changes a table's dataset; it is never run twice."""
        return await self._locate_and_run(id, work, snapshot, changes=True)

    async def _locate_and_run(
        self, id: Iterable[str] | None, work: Callable[[LanceDataset, Table], T], snapshot: Snapshot, *, changes: bool
    ) -> T:
        with self.operation():
            table = await self.locator.locate(self.table(id))
            return await self.open_and_run(table, lambda dataset: work(dataset, table), snapshot, changes=changes)

    async def open_and_run(
        self, table: Table, work: Callable[[LanceDataset], T], snapshot: Snapshot = LATEST, *, changes: bool = False
    ) -> T:
        """Returns the result of `work` on the dataset of a table that is already located, in a worker thread."""
        opened: list[LanceDataset] = []

        def run() -> T:
            opened.append(self.opener.open(table, snapshot))
            if changes:
                next_step("change", table.location)
            return work(opened[0])

        try:
            async with concurrent_changes.explain_conflict(self.backend, table):
                return await in_thread(table, run, changes=changes)
        except TableColumnNotFoundError as e:
            unknown = _UNKNOWN_COLUMN.search(str(e))
            if unknown is None or not opened:
                raise
            name = unknown[1] or unknown[2]
            there_is = suggest(name, opened[0].schema.names, most=10)
            raise error_about(TableColumnNotFoundError, table.id, f"column {name!r}: {there_is}") from e.__cause__


def with_request_scopes(cls: C) -> C:
    """Runs each public coroutine of a class with a `session` in a `request_scope`."""

    def scoped(method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        @wraps(method)
        async def call(self: Any, *args: Any, **kwargs: Any) -> T:
            with self.session.request_scope():
                return await method(self, *args, **kwargs)

        return call

    for name, method in list(vars(cls).items()):
        if iscoroutinefunction(method) and not name.startswith("_"):
            setattr(cls, name, scoped(method))
    return cls


def traced(
    function: Callable[Concatenate[Session, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]:
    """Makes the calls of an operation on many tables parts of one operation in traces."""

    @wraps(function)
    async def run(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with session.caller.observers.operation(function.__name__):
            return await function(session, *args, **kwargs)

    return run


def open_catalog(
    impl: str,
    properties: Mapping[str, str],
    *,
    policy: Policy | None = None,
    connect_callbacks: Callable[[], LanceNamespace] | None = None,
) -> Session:
    """Returns a session with a catalog; makes no call.

    Args:
        impl: The name of the backend, one of `lance_ns_async.registry.BACKENDS`.
        properties: The properties of this backend; may include Python objects (`settings.with_objects`).
        policy: Replaces all limits in the properties; None keeps them.
        connect_callbacks: Creates the namespace that Lance calls back; None if datasets do not need one.
    """
    properties = conceal(properties)
    backend_class = registry.load(impl)
    settings = backend_class.settings.parse(properties)
    limits, id = settings.limit(policy or settings.policy()), _id(impl, settings, properties)
    caller = Caller(limits, backend_class.errors, slots=limits.slots(id))
    for function in on_open:
        function(id, caller)
    backend = backend_class.open(settings, caller)
    return Session(
        backend,
        caller,
        Opener(connect_callbacks),
        id=id,
        root=getattr(settings, "root", None),
        drop_retention=settings.drop_retention,
    )


_UNKNOWN_COLUMN = re.compile(  # The column in the messages of Lance.
    r"(?:No field named|olumn|field path) ['\"`]?([^\s'\"`]+?)['\"`]?(?:\.[\s)]| is not in | does not exist)"
    r"|(\S+) not found in schema"
)


def _id(impl: str, settings: Settings, properties: Mapping[str, str]) -> str:
    # The key is random for each process: the digest distinguishes principals without revealing a secret.
    return f"lance_ns_async:{impl}:{settings.identity()}#{_digest(properties)}"


def _digest(properties: Mapping[str, Any]) -> str:
    values = {key: _callable_id(value) if callable(value) else value for key, value in reveal(properties).items()}
    text = repr(sorted(values.items())).encode()
    return hmac.new(_SECRET_DIGEST_KEY, text, sha256).hexdigest()[:12]


def _callable_id(function: object) -> tuple[int, str]:
    """Returns an id of a callable; accesses to a method of the same object have the same id."""
    # The repr is not used, because it may be equal for callables with different secrets.
    return id(getattr(function, "__self__", function)), getattr(function, "__qualname__", "")
