"""Finding thousands of tables from the driver, side by side, so that Spark need not ask one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Literal, Self

import anyio.to_thread
from lance_namespace.errors import InvalidInputError

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.policy import Policy
from lance_ns_async.spark.locations import Locations
from lance_ns_async.spark.memory import Memory
from lance_ns_async.spark.patterns import Wanted, What
from lance_ns_async.spark.prefetch import Ask, prefetch
from lance_ns_async.spark.progress import Tell
from lance_ns_async.sync import Namespace

IN_FLIGHT = 64
"""How many remote calls a resolver has under way at once, unless it is told otherwise."""


class LocationResolver:
    """Finds many tables of one catalog at once, and remembers them for a while.

    With a Namespace use `prefetch`, from scripts and notebooks; with an AsyncNamespace `await aprefetch`, in
    that namespace's loop. The namespace stays the caller's to close. A table is remembered for `ttl` seconds,
    or until a minute before its storage options expire, and the version pinned for it with it; at most
    `remembers` tables are. Errors and listings are not remembered.
    """

    def __init__(self, namespace: Namespace | AsyncNamespace, *, ttl: float = 300.0, remembers: int = 200_000) -> None:
        if not isinstance(namespace, Namespace | AsyncNamespace):
            raise InvalidInputError(
                f"LocationResolver({namespace!r}): wants a Namespace or an AsyncNamespace of lance_ns_async; "
                "LocationResolver.connect makes one from a catalog's name and properties"
            )
        _check(ttl, remembers)
        self._namespace = namespace
        self._owns = False
        self._memory = Memory(ttl=ttl, limit=remembers)

    @classmethod
    def connect(
        cls, impl: str, properties: Mapping[str, str], *, policy: Policy | None = None, ttl: float = 300.0
    ) -> LocationResolver:
        """A resolver with a namespace of its own, as `Namespace.connect` makes it; closing it closes that.

        Unless `policy` or the properties say otherwise, 64 calls may be in flight.
        """
        # Before there is a namespace that nobody would close.
        _check(ttl)
        if policy is None and not any(_limits(key) for key in properties):
            properties = {**properties, "max_in_flight": str(IN_FLIGHT)}
        resolver = cls(Namespace.connect(impl, properties, policy=policy), ttl=ttl)
        resolver._owns = True
        return resolver

    def prefetch(
        self,
        what: What,
        *,
        pin_versions: bool = True,
        on_error: Literal["report", "raise"] = "report",
        max_in_flight: int = IN_FLIGHT,
        timeout: float | None = None,
        progress: bool | Tell = True,
    ) -> Locations:
        """Where the tables are that `what` means: ids, namespaces and patterns such as `"db.*"`, mixed.

        Asks only for what is not remembered. `pin_versions` opens each dataset once, here on the driver, and
        so learns its version, columns and size. One bad table never spoils the others: it is in the report,
        or with `on_error="raise"` part of one error that is raised when all was tried. No more calls than
        `max_in_flight` and the namespace's policy allow are under way; `timeout` bounds the whole in seconds,
        and what is not there by then fails. `progress` shows a line on a terminal's stderr, or is told
        (steps done, steps in all), a step being a describe or an open, in the background thread.

        Raises InvalidInputError at once for an id the catalog can never have.
        """
        if isinstance(self._namespace, AsyncNamespace):
            raise InvalidInputError(
                "prefetch: this resolver has an AsyncNamespace, which lives in its own event loop; "
                "use `await resolver.aprefetch(...)` there, or give the resolver a Namespace"
            )
        ask = Ask(Wanted.read(what), pin_versions, on_error, max_in_flight, timeout, progress)
        return self._namespace.run(partial(prefetch, memory=self._memory, ask=ask))

    async def aprefetch(
        self,
        what: What,
        *,
        pin_versions: bool = True,
        on_error: Literal["report", "raise"] = "report",
        max_in_flight: int = IN_FLIGHT,
        timeout: float | None = None,
        progress: bool | Tell = True,
    ) -> Locations:
        """See `prefetch`.

        Where the resolver has a sync Namespace, the work goes on in its background loop while a worker thread
        waits for it; cancelling ends only your own wait, and `timeout` ends all three.
        """
        ask = Ask(Wanted.read(what), pin_versions, on_error, max_in_flight, timeout, progress)
        work = partial(prefetch, memory=self._memory, ask=ask)
        if isinstance(self._namespace, AsyncNamespace):
            return await work(self._namespace)
        return await anyio.to_thread.run_sync(self._namespace.run, work, abandon_on_cancel=True)

    def forget(self, what: What | None = None) -> None:
        """Forgets all tables, or those that `what` means, so that the next prefetch asks for them again."""
        self._memory.forget(None if what is None else Wanted.read(what))

    def close(self) -> None:
        """Closes the namespace if the resolver made it itself; may be called twice."""
        if self._owns and isinstance(self._namespace, Namespace):
            self._namespace.close()

    async def aclose(self) -> None:
        """See `close`."""
        await anyio.to_thread.run_sync(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"LocationResolver({self._namespace!r})"


def _check(ttl: float, remembers: int = 0) -> None:
    if not ttl >= 0:
        raise InvalidInputError(f"ttl {ttl}: it is a number of seconds; 0 to remember nothing")
    if remembers < 0:
        raise InvalidInputError(f"remembers {remembers}: it is a number of tables; 0 to remember nothing")


def _limits(key: str) -> bool:
    return re.sub("[-.]", "_", key).endswith("max_in_flight")
