"""The base of sync namespaces: a session for each process, on a background event loop."""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Self, TypeAlias, TypeVar, cast

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.calls.observers import Observer, next_group
from lance_ns_async.calls.policy import Policy
from lance_ns_async.calls.slots import CallLoad
from lance_ns_async.calls.tagged_results import CacheUse
from lance_ns_async.engine.describe import ListingPositions
from lance_ns_async.errors import no_attribute, without_inner_calls
from lance_ns_async.facade.background_loop import BackgroundLoop, loop_lock
from lance_ns_async.many import bulk
from lance_ns_async.many.scanning import RowReader, RowStream
from lance_ns_async.many.similar_ids import add_hint, deserves_hint
from lance_ns_async.model import Table, TableId
from lance_ns_async.registry import BACKENDS, CLASS_PATHS, load
from lance_ns_async.session import Session, open_catalog
from lance_ns_async.settings import TokenFunction, Transports, conceal, with_objects

Property: TypeAlias = str | PathLike[str]

C = TypeVar("C", bound=type)
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Lease:
    """The session of one process, and the event loop that it belongs to."""

    session: Session
    loop: BackgroundLoop

    def close(self) -> None:
        if self.loop.is_here:
            # A callback on the loop closes the namespace; waiting there would block the loop.
            self.close_soon()
            return
        try:
            self.loop.run(self.session.aclose())
        finally:
            self.loop.release()

    def close_soon(self) -> None:
        self.loop.close_soon(self.session.aclose())


def _with_hint(
    hint: Callable[[S], str],
) -> Callable[[Callable[Concatenate[S, P], None]], Callable[Concatenate[S, P], None]]:
    """Adds a hint on the correct call to the TypeError that a constructor raises for wrong arguments."""

    def wrap(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
        signature = inspect.signature(init)
        named = frozenset(signature.parameters)

        @wraps(init)
        def init_with_hint(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            # Properties are a mapping, or keywords that no parameter names.
            args = tuple(conceal(it) if isinstance(it, Mapping) else it for it in args)  # type: ignore[assignment]
            kwargs = {  # type: ignore[assignment]
                **{
                    name: conceal(it) if isinstance(it, Mapping) else it for name, it in kwargs.items() if name in named
                },
                **conceal({name: it for name, it in kwargs.items() if name not in named}),
            }
            try:
                signature.bind(self, *args, **kwargs)
            except TypeError as e:
                raise TypeError(f"{type(self).__name__}: {e}; {hint(self)}") from None
            init(self, *args, **kwargs)

        return init_with_hint

    return wrap


def _how_to_connect(namespace: Facade) -> str:
    paths = ", ".join(CLASS_PATHS.values())
    return f'use Namespace.connect("dir", {{"root": "lake"}}), or of a class path one of {paths}'


def documented_by(source: type) -> Callable[[C], C]:
    """Gives the methods of a class the docstrings of those of the same names in `source`, whose summaries they have."""

    def document(cls: C) -> C:
        for name, method in vars(cls).items():
            summary, docstring = getattr(method, "__doc__", None), getattr(getattr(source, name, None), "__doc__", None)
            if inspect.isfunction(method) and summary and docstring and docstring.startswith(summary):
                method.__doc__ = docstring.replace("runs in the event loop", "runs in the background thread")
        return cls

    return document


class Facade:
    """Runs operations of a session on a background event loop, from any thread, and also after a fork."""

    @_with_hint(_how_to_connect)
    def __init__(
        self,
        impl: str,
        properties: Mapping[str, Property],
        policy: Policy | None = None,
        *,
        token: TokenFunction | None = None,
        transport: Transports | None = None,
    ) -> None:
        properties = conceal(properties)
        self._impl = impl
        # For the repr of a namespace that could not be connected.
        self._id = f"lance_ns_async:{impl}"
        self._properties = dict(with_objects(properties, token=token, transport=transport))
        self._policy = policy
        self._leases: dict[int, tuple[_Lease, weakref.finalize[[], Facade]]] = {}
        self._is_closed = False
        self._first_session: Session | None = self._open_session()
        self._id = self._first_session.id
        # All sessions of this namespace share it, also those in forked processes.
        self._slots = self._first_session.caller.slots

    def namespace_id(self) -> str:
        """Returns an id of the catalog that is equal for equal properties within a process, and has no secrets."""
        return self._id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._id})"

    if not TYPE_CHECKING:  # Type checkers report unknown attributes themselves.

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name, "from lance_ns_async.fleet import sync as fleet")

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self._impl, self._properties, self._policy)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases connections, threads and the background loop; may be called twice. Not required at process end."""
        with loop_lock():
            self._is_closed = True
            mine = self._leases.pop(os.getpid(), None)
        if mine is not None:
            lease, finalizer = mine
            if finalizer.detach():
                lease.close()

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Passes every remote call to `observer` when the call ends, while the context is open.

        Args:
            observer: Receives the calls; runs in the background thread.
        """
        return self._lease().session.caller.observe(observer)

    def snapshot(self) -> CallLoad:
        """Returns the current load of the slots for calls to this catalog.

        Namespaces with equal properties share these slots. Calls for tokens and credentials are not included.

        Cost:
            No call. Any thread may use it, at any time, also after the namespace was closed.
        """
        return self._slots.snapshot()

    def table_cache(self) -> CacheUse:
        """Returns the content and the use of the cache of described tables, which belongs to this namespace alone.

        Only `iceberg` has one, and only with the property `rest_table_cache_max_entries`. A forked process has its own.

        Cost:
            No call. Any thread may use it.
        """
        return self._lease().session.backend.table_cache()

    def _open_session(self) -> Session:
        return open_catalog(self._impl, self._properties, policy=self._policy)

    def _lease(self) -> _Lease:
        process = os.getpid()
        if (mine := self._leases.get(process)) is not None and not self._is_closed:
            return mine[0]
        with loop_lock():
            if self._is_closed:
                raise InvalidInputError(f"namespace {self._id}: it is closed; connect anew")
            if process not in self._leases:
                # A forked child has its own copy of an unused session; sessions in use belong to the parent.
                session, self._first_session = self._first_session or self._open_session(), None
                lease = _Lease(session, BackgroundLoop.lease())
                self._leases[process] = lease, weakref.finalize(self, lease.close_soon)
            return self._leases[process][0]

    def _call(
        self, operation: Callable[Concatenate[Session, P], Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        lease = self._lease()
        try:
            with lease.session.request_scope():
                # The work on the loop gets a copy of the context of this thread.
                return lease.loop.run(operation(lease.session, *args, **kwargs))
        except LanceNamespaceError as e:
            if deserves_hint(e):
                lease.loop.run(add_hint(lease.session, e))
            raise without_inner_calls(e) from e.__cause__

    def _flatten(self, walk: Callable[[Session], AsyncGenerator[Sequence[T], None]]) -> Generator[T, None, None]:
        # The session opens with the first item, because a fork may come between the creation and the use of an
        # iterator.
        lease = self._lease()
        groups = walk(lease.session)
        try:
            while (group := lease.loop.run(next_group(groups))) is not None:
                yield from group
        except LanceNamespaceError as e:
            raise without_inner_calls(e) from e.__cause__
        finally:
            lease.loop.finish_soon(groups)

    def _read(
        self,
        operation: Callable[Concatenate[Session, P], Coroutine[Any, Any, RowStream]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> RowReader:
        stream = self._call(operation, *args, **kwargs)
        batches = self._flatten(lambda _: stream.groups)
        return RowReader(stream.schema, stream.versions, stream.errors, batches=batches)

    def _stream_tables(
        self, ids: Iterable[Iterable[str]], *, max_in_flight: int | None
    ) -> Iterator[tuple[TableId, Table | LanceNamespaceError]]:
        # The ids are read in this thread, because an iterator of this namespace would wait for the loop on the loop.
        places: ListingPositions = {}
        for group in bulk.id_groups(self._lease().session, ids):
            result = self._call(bulk.describe_group, group, places, max_in_flight=max_in_flight)
            for id in group:
                yield id, result.outcome(id)


def _how_to_name(namespace: ByProperties) -> str:
    example = ", ".join(f'{name}="{value}"' for name, value in BACKENDS[namespace.impl].example.items())
    return f"it takes properties by name, for example {example}"


def keywords(impl: str) -> list[str]:
    """Returns the names of a backend's properties that are keywords of its class, beside `token` and `transport`."""
    names = load(impl).settings.names()
    return [name for name in names if name.isidentifier() and name not in ("token", "transport")]


class _SignatureOfProperties:
    """The signature of a class with its properties, which notebooks and shells complete."""

    def __get__(self, instance: object, owner: type[ByProperties]) -> inspect.Signature:
        keyword = inspect.Parameter.KEYWORD_ONLY
        try:
            names = keywords(owner.impl)
        except InvalidInputError as e:  # The extra is not installed.
            raise AttributeError(str(e)) from e
        _, *others = inspect.signature(owner.__init__).parameters.values()
        own = [inspect.Parameter(name, keyword, default=None, annotation="str | None") for name in names]
        return inspect.Signature([*own, *others])


class ByProperties(Facade):
    """Constructs a namespace of one backend from properties only, like `lance_namespace.connect` does."""

    impl: ClassVar[str]

    __signature__ = _SignatureOfProperties()

    @_with_hint(_how_to_name)
    def __init__(
        self,
        /,
        *,
        token: TokenFunction | str | None = None,
        transport: Transports | str | None = None,
        **properties: Property,
    ) -> None:
        """Connects to the catalog.

        Args:
            token: For catalogs with bearer tokens, a function that returns one; see `AsyncNamespace.connect`. Pass
                a token itself as the property `auth_token`.
            transport: For catalogs with HTTP, the httpx transport of the requests; see `AsyncNamespace.connect`.
            **properties: The properties by name; a name with a dot as `**{"storage.region": "eu"}`. The documentation
                of each catalog lists them, including the limits of calls.

        Raises:
            InvalidInputError: A property is invalid; the message lists the known properties or the likely name.
            TypeError: An argument is not a keyword argument.
        """
        properties = dict(conceal(properties))
        # A string is rejected by the check of the properties.
        super().__init__(
            self.impl,
            properties,
            token=cast("TokenFunction | None", token),
            transport=cast("Transports | None", transport),
        )


def _unpickle(cls: type[Facade], impl: str, properties: Mapping[str, str], policy: Policy | None) -> Facade:
    namespace = cls.__new__(cls)
    Facade.__init__(namespace, impl, properties, policy)
    return namespace
