"""An open catalog: the backend, its limits, and the checks before each operation."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from types import TracebackType
from typing import Any, NoReturn, Self

from lance_namespace.errors import InvalidInputError

from lance_ns_async import registry
from lance_ns_async.backends import ids
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.observers import Observer
from lance_ns_async.calls.policy import Caller, Policy, deadline
from lance_ns_async.calls.traffic import CallLoad
from lance_ns_async.engine.list import Lister
from lance_ns_async.engine.locate import Locator
from lance_ns_async.engine.walk import Tree
from lance_ns_async.errors import one_line_errors
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.settings import Settings, TokenFunction, conceal, reveal, with_token
from lance_ns_async.storage.locations import root_uri

_SECRET_DIGEST_KEY = os.urandom(16)


class Session:
    """The base of all operations of a namespace: a backend, and the policy for its calls."""

    def __init__(self, backend: Backend, caller: Caller, namespace_id: str) -> None:
        self._backend = backend
        self._locator = Locator(backend)
        self._caller = caller
        self._namespace_id = namespace_id
        self._root: str | None = None
        """The configured root of default locations; None if there is none."""
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the first use, which the connections and locks belong to; None before that."""

    @classmethod
    def connect(
        cls,
        impl: str,
        properties: Mapping[str, str],
        *,
        policy: Policy | None = None,
        token: TokenFunction | None = None,
    ) -> Self:
        """Returns a namespace over a catalog.

        Args:
            impl: The name of the backend, one of `lance_ns_async.registry.BACKENDS`.
            properties: The properties of this backend.
            policy: Replaces all limits in the properties; None keeps them.
            token: For catalogs with bearer tokens, a function that returns a token, or a tuple of a token and its
                expiry: in seconds from now, in seconds since 1970, or as a datetime with a time zone. It is called when
                a token is needed, expires or is rejected; in a worker thread, unless it is a coroutine function.

        Raises:
            InvalidInputError: The backend is unknown, its extra is not installed, or a property is invalid.

        Cost:
            No call: problems with the server are raised by the first operation.
        """
        properties = conceal(properties)
        backend_class = registry.load(impl)
        properties = with_token(properties, token)
        settings = backend_class.settings.parse(properties)
        limits, namespace_id = settings.within(policy or settings.policy()), _namespace_id(impl, settings, properties)
        caller = Caller(limits, backend_class.errors, traffic=limits.traffic(namespace_id))
        session = cls(backend_class.open(settings, caller), caller, namespace_id)
        session._root = getattr(settings, "root", None)
        return session

    def namespace_id(self) -> str:
        """Returns an id of the catalog that is equal for equal properties within a process, and has no secrets."""
        return self._namespace_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._namespace_id})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: it belongs to one event loop and cannot be pickled; pickle a Namespace"
        )

    async def __aenter__(self) -> Self:
        self._check_loop()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Releases connections and threads; may be called twice.

        Also called in another event loop, it closes them in the namespace's own loop while that runs.

        Raises:
            InvalidInputError: The event loop of the namespace has ended or does not run; connections cannot be closed
                in another one.
        """
        own = self._loop
        if own is not None and own is not asyncio.get_running_loop() and own.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), own))
            return
        self._check_loop()
        await self._close()

    async def _close(self) -> None:
        self._is_closed = True
        self._locator.forget()
        await self._backend.aclose()

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Passes every remote call to `observer` when the call ends, while the context is open.

        Args:
            observer: Receives the calls; runs in the event loop.
        """
        return self._caller.observe(observer)

    def snapshot(self) -> CallLoad:
        """Returns the current load of the slots for calls to this catalog.

        Namespaces with equal properties share these slots. Calls for tokens and credentials are not included.

        Cost:
            No call. Any thread may use it, at any time, also after the namespace was closed.
        """
        return self._caller.traffic.snapshot()

    async def own_folders(self, parent: Iterable[str]) -> Sequence[str]:
        """Returns the folders in which the catalog itself places the tables of a namespace.

        Args:
            parent: The id of the namespace.

        Returns:
            The configured root, and the folder of the namespace; as URIs, and for catalogs that resolve relative
                locations also as it was configured.

        Raises:
            NamespaceNotFoundError: The namespace does not exist; only if the catalog stores its folder.

        Cost:
            No call, or one if the catalog stores the default location of a namespace.
        """
        folders: list[str] = []
        if self._root is not None:
            folders.append(root_uri(self._root))
            if self._backend.capabilities.relative_locations:
                folders.append(self._root)
        above = self._namespace(parent)
        can = self._backend.capabilities
        if above and len(above) >= can.min_depth:
            with self._operation(), suppress(InvalidInputError):
                # A catalog without any default location refuses to return one.
                place = await self._backend.layout_location(above.table("table"))
                if place is not None:
                    folders.append(place.rpartition("/")[0])
                elif can.location_properties:
                    properties = await self._backend.describe_namespace(above)
                    folders.extend(properties[key] for key in can.location_properties if key in properties)
        return folders

    def _operation(self) -> AbstractContextManager[None]:
        return self._within(self._caller.policy.operation_timeout)

    @contextmanager
    def _changing(self, *ids: TableId) -> Iterator[None]:
        """Bounds an operation that changes the registrations of tables, which are then located anew; none means all."""
        with self._operation():
            try:
                yield
            finally:
                self._locator.forget(*ids)

    def _within(self, seconds: float | None) -> AbstractContextManager[None]:
        if seconds is not None and not seconds > 0:
            raise InvalidInputError(f"timeout {seconds}: must be a number of seconds above 0, or None for no limit")
        self._check_open()
        self._check_loop()
        return _limit_time(seconds)

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidInputError(f"namespace {self._namespace_id}: it is closed; connect anew")

    def _check_loop(self) -> None:
        """Raises InvalidInputError if the running event loop is not the one of the first use."""
        running = asyncio.get_running_loop()
        if self._loop is running:
            return
        if self._loop is not None:
            hint = ", which has ended" if self._loop.is_closed() else ""
            raise InvalidInputError(
                f"namespace {self._namespace_id}: it was first used in another event loop{hint}; connect, use and "
                "close an AsyncNamespace in one loop, or use a Namespace, which any thread and loop may call"
            )
        self._loop = running

    def _lister(self) -> Lister:
        return Lister(self._backend, max_in_flight=self._workers(None))

    def _tree(self, start: Iterable[str] | None) -> Tree:
        self._check_open()
        return Tree(self._backend, self._namespace(start), max_in_flight=self._workers(None))

    def _workers(self, max_in_flight: int | None) -> int:
        if max_in_flight is not None and max_in_flight < 1:
            raise InvalidInputError(f"max_in_flight {max_in_flight}: must be at least 1")
        limit = self._caller.policy.max_in_flight
        return limit if max_in_flight is None else min(max_in_flight, limit)

    def _namespace(self, names: Iterable[str] | None) -> NamespaceId:
        return ids.namespace_id(names, self._backend.capabilities)

    def _table(self, names: Iterable[str] | None) -> TableId:
        return ids.table_id(names, self._backend.capabilities)


@contextmanager
def _limit_time(seconds: float | None) -> Iterator[None]:
    with one_line_errors(), deadline(seconds):
        yield


def _namespace_id(impl: str, settings: Settings, properties: Mapping[str, str]) -> str:
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
