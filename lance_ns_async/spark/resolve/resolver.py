"""Finding thousands of tables from the driver, side by side, so that Spark need not ask one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import anyio.to_thread
from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls.policy import Policy
from lance_ns_async.namespace import requests
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.sync import Namespace
from lance_ns_async.settings import folded
from lance_ns_async.spark.resolve.cache import Memory
from lance_ns_async.spark.resolve.locations import Locations
from lance_ns_async.spark.resolve.patterns import Wanted, What, table_id
from lance_ns_async.spark.resolve.prefetch import Ask, prefetch
from lance_ns_async.spark.resolve.progress import Tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lance_ns_async.spark.resolve.report import WriteReport

IN_FLIGHT = 64
"""How many remote calls a resolver has under way at once, unless it is told otherwise."""

REMEMBERS = 200_000
"""How many tables a resolver remembers, unless it is told otherwise."""

LASTING = 600.0
"""How many seconds refreshed storage options should last; a DataFrame warns of those that last less."""


class LocationResolver:
    """Finds many tables of one catalog at once, and remembers them for a while.

    With a Namespace use `prefetch`, from scripts and notebooks; with an AsyncNamespace `await aprefetch`, in
    that namespace's loop. The namespace stays the caller's to close. A table is remembered for `ttl` seconds,
    or until a minute before its storage options expire, and the version pinned for it with it; at most
    `remembers` tables are, the longest unused being forgotten first. Errors and listings are not remembered.

    `vend_credentials` asks the catalog for credentials with each table, a call a table or more; one that gives
    out none is asked without.
    """

    def __init__(
        self,
        namespace: Namespace | AsyncNamespace,
        *,
        ttl: float = 300.0,
        remembers: int = REMEMBERS,
        vend_credentials: bool = False,
    ) -> None:
        if not isinstance(namespace, Namespace | AsyncNamespace):
            raise InvalidInputError(
                f"LocationResolver({namespace!r}): wants a Namespace or an AsyncNamespace of lance_ns_async; "
                "LocationResolver.connect makes one from a catalog's name and properties"
            )
        _check(ttl, remembers)
        self._namespace = namespace
        self._owns = False
        self._vends = vend_credentials
        self._memory = Memory(ttl=ttl, limit=remembers)

    @classmethod
    def connect(
        cls,
        impl: str,
        properties: Mapping[str, str],
        *,
        policy: Policy | None = None,
        ttl: float = 300.0,
        remembers: int = REMEMBERS,
        vend_credentials: bool = False,
    ) -> LocationResolver:
        """A resolver with a namespace of its own, as `Namespace.connect` makes it; closing it closes that.

        Unless `policy` or the properties say otherwise, 64 calls may be in flight.
        """
        # Before there is a namespace that nobody would close.
        _check(ttl, remembers)
        if policy is None and not any(folded(key).endswith("max_in_flight") for key in properties):
            properties = {**properties, "max_in_flight": str(IN_FLIGHT)}
        namespace = Namespace.connect(impl, properties, policy=policy)
        resolver = cls(namespace, ttl=ttl, remembers=remembers, vend_credentials=vend_credentials)
        resolver._owns = True
        return resolver

    @property
    def namespace(self) -> Namespace | AsyncNamespace:
        """Whom it asks."""
        return self._namespace

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
        ask = self._prefetching(what, pin_versions, on_error, max_in_flight, timeout, progress)
        return self._run(ask, "prefetch")

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
        ask = self._prefetching(what, pin_versions, on_error, max_in_flight, timeout, progress)
        return await self._arun(ask)

    def refresh(
        self,
        locations: Locations,
        *,
        lasting: float = LASTING,
        on_error: Literal["report", "raise"] = "raise",
        max_in_flight: int = IN_FLIGHT,
        timeout: float | None = None,
    ) -> Locations:
        """The same tables at the same versions, with storage options that are still good for `lasting` seconds.

        Asks only for what is not remembered or would expire sooner, and opens nothing. What was built from the old
        locations keeps the old storage options: build it anew from these. `prefetch(locations)` gives the newest
        versions instead, as far as none is remembered.

        A table that is gone, or is at another place by now, is part of the error, or with `on_error="report"`
        not among the locations. Where the catalog itself gives options that last less, they are taken as they are.
        """
        return self._run(self._refreshing(locations, lasting, on_error, max_in_flight, timeout), "refresh")

    async def arefresh(
        self,
        locations: Locations,
        *,
        lasting: float = LASTING,
        on_error: Literal["report", "raise"] = "raise",
        max_in_flight: int = IN_FLIGHT,
        timeout: float | None = None,
    ) -> Locations:
        """See `refresh`, and `aprefetch` for whose loop it is."""
        return await self._arun(self._refreshing(locations, lasting, on_error, max_in_flight, timeout))

    def write(
        self,
        df: DataFrame,
        id: str | Iterable[str],
        *,
        mode: Literal["create", "append", "overwrite", "ignore"] = "create",
        schema: pa.Schema | None = None,
        max_rows_per_file: int | None = None,
        max_bytes_per_file: int | None = None,
        data_storage_version: str | None = None,
    ) -> WriteReport:
        """Writes a DataFrame to a table: executors write the files, and this process commits them as one version.

        Create declares the table first and wants it new; ignore does so too, but leaves one that is there as it is.
        Append adds rows to the columns there are. Overwrite replaces rows and columns in a new version, or creates
        the table. Columns are compared by name before any job, and each batch is cast to the table's types. Those of
        a new version are Spark's, unless `schema` has others for some or all, such as vectors of a fixed length. None
        leaves the size of files and their format to Lance, or to the table that is there.

        Costs a describe before the job and one after it, and a declare where the table is new. Where the job fails
        nothing is committed, what finished tasks have written is removed, and a table declared for it is there no
        more. Errors of the DataFrame's own are Spark's. Blocks until all is done; needs pandas.
        """
        from lance_ns_async.spark.write.write import MODES, Writing, write

        namespace = self._blocking("write", "a job of Spark's would hold that up, so give the resolver a Namespace")
        table = table_id(id)
        limits = {"max_rows_per_file": max_rows_per_file, "max_bytes_per_file": max_bytes_per_file}
        writing = Writing(table, requests.word(mode, "mode", MODES), schema, data_storage_version, limits)
        try:
            return write(namespace, df, writing)
        finally:
            self._memory.forget(Wanted((table,), ()))

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

    def _prefetching(
        self,
        what: What,
        pin_versions: bool,
        on_error: str,
        max_in_flight: int,
        timeout: float | None,
        progress: bool | Tell,
    ) -> Ask:
        return Ask(
            wanted=Wanted.read(what),
            pin_versions=pin_versions,
            on_error=on_error,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
            vends=self._vends,
        )

    def _refreshing(
        self, locations: Locations, lasting: float, on_error: str, max_in_flight: int, timeout: float | None
    ) -> Ask:
        return Ask(
            wanted=Wanted(tuple(locations), ()),
            pin_versions=False,
            on_error=on_error,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=False,
            vends=self._vends,
            keeps=locations,
            lasting=lasting,
        )

    def _run(self, ask: Ask, name: str) -> Locations:
        remedy = f"use `await resolver.a{name}(...)` there, or give the resolver a Namespace"
        return self._blocking(name, remedy).run(partial(prefetch, memory=self._memory, ask=ask))

    async def _arun(self, ask: Ask) -> Locations:
        work = partial(prefetch, memory=self._memory, ask=ask)
        if isinstance(self._namespace, AsyncNamespace):
            return await work(self._namespace)
        return await anyio.to_thread.run_sync(self._namespace.run, work, abandon_on_cancel=True)

    def _blocking(self, name: str, remedy: str) -> Namespace:
        """The namespace that may be waited for; raises InvalidInputError where it has to be awaited."""
        if isinstance(self._namespace, AsyncNamespace):
            raise InvalidInputError(
                f"{name}: this resolver has an AsyncNamespace, which lives in its own event loop; {remedy}"
            )
        return self._namespace


def _check(ttl: float, remembers: int) -> None:
    if not ttl >= 0:
        raise InvalidInputError(f"ttl {ttl}: it is a number of seconds; 0 to remember nothing")
    if remembers < 0:
        raise InvalidInputError(f"remembers {remembers}: it is a number of tables; 0 to remember nothing")
