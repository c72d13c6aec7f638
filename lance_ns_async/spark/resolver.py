"""Resolver of thousands of table locations: concurrent on the driver, so that Spark makes no call for each table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import anyio.to_thread
from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls.policy import Policy
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.many.changes import Change
from lance_ns_async.many.patterns import Selection, What, table_id
from lance_ns_async.model import TableId
from lance_ns_async.operations import requests
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.settings import conceal
from lance_ns_async.spark.locations import Locations
from lance_ns_async.spark.resolve.location import LocationCache
from lance_ns_async.spark.resolve.prefetch import PrefetchRequest, prefetch
from lance_ns_async.sync import Namespace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lance_ns_async.fleet.run import Report
    from lance_ns_async.spark.broker import Brokers
    from lance_ns_async.spark.renewal import Renewal
    from lance_ns_async.spark.resolve.location import Location
    from lance_ns_async.spark.resolve.report import WriteReport
    from lance_ns_async.spark.write.many import By, Into

IN_FLIGHT = Policy().max_in_flight
"""Default maximum number of concurrent remote calls of a resolver."""

REMEMBERS = 200_000
"""Default maximum number of tables in the cache of a resolver."""

LASTING = 600.0
"""Default minimum lifetime of refreshed storage options in seconds; a DataFrame warns of a shorter one."""

_JOB_BLOCKS = "a Spark job would block that loop, so create the resolver with a Namespace"


class LocationResolver:
    """Resolves the locations of many tables of one catalog concurrently and caches them.

    In scripts and notebooks, use a Namespace and `prefetch`. In an event loop, use an AsyncNamespace and
    `await aprefetch` in that namespace's loop. The caller closes the namespace.

    A cache entry contains a table and its pinned version. It is valid until a minute before the storage options expire,
    and at most for `ttl` seconds. Errors and listings are not cached.

    Args:
        namespace: The namespace of the catalog.
        ttl: Maximum lifetime of a cache entry in seconds; 0 for no cache.
        remembers: Maximum number of cached tables; the least recently used ones are removed first. 0 for no cache.
        vend_credentials: Whether to request credentials for each table. If the catalog vends any, this costs at least
            one call for each table. A table for which the catalog refuses them is requested again without them.

    Raises:
        InvalidInputError: `namespace` is neither a Namespace nor an AsyncNamespace, or a number is invalid.
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
                f"LocationResolver({namespace!r}): must be a Namespace or an AsyncNamespace of lance_ns_async; "
                "LocationResolver.connect creates one from a catalog's name and properties"
            )
        _check(ttl, remembers)
        self._namespace = namespace
        self._owns = False
        self._vends = vend_credentials
        self._cache = LocationCache(ttl=ttl, limit=remembers)
        self._brokers: Brokers | None = None
        self._is_closed = False

    @classmethod
    def connect(
        cls,
        impl: str,
        properties: Mapping[str, str | PathLike[str]],
        *,
        policy: Policy | None = None,
        ttl: float = 300.0,
        remembers: int = REMEMBERS,
        vend_credentials: bool = False,
    ) -> LocationResolver:
        """Returns a resolver that owns its namespace; closing the resolver closes the namespace.

        Args:
            impl: The name of the catalog's implementation, as in `Namespace.connect`.
            properties: The properties of the catalog, as in `Namespace.connect`.
            policy: Limits of the remote calls. None for those in the properties.
            ttl: Maximum lifetime of a cache entry in seconds; 0 for no cache.
            remembers: Maximum number of cached tables; 0 for no cache.
            vend_credentials: Whether to request credentials for each table.

        Returns:
            A resolver with a sync Namespace.

        Raises:
            InvalidInputError: The implementation is unknown, or a property or a number is invalid.

        Cost:
            No remote call.
        """
        # The check comes first, because an error after the next step would leave the new namespace open.
        _check(ttl, remembers)
        properties = conceal(properties)
        namespace = Namespace.connect(impl, properties, policy=policy)
        resolver = cls(namespace, ttl=ttl, remembers=remembers, vend_credentials=vend_credentials)
        resolver._owns = True
        return resolver

    @property
    def namespace(self) -> Namespace | AsyncNamespace:
        """The namespace of the catalog."""
        return self._namespace

    def prefetch(
        self,
        what: What,
        *,
        where: str | None = None,
        pin_versions: bool = True,
        on_error: Literal["report", "raise"] = "report",
        max_in_flight: int = IN_FLIGHT,
        timeout: float | None = None,
        progress: bool | ProgressCallback = True,
    ) -> Locations:
        """Returns the locations of the tables that `what` selects.

        A failure does not affect the other tables.

        Args:
            what: Table ids, namespaces and patterns such as `"db.*"`, in any mixture.
            where: A condition as in `AsyncNamespace.list_partitions`, for a partitioned directory: only partitions that
                may have matching rows are resolved. Pass it to `Locations.dataframe` as `filter`, too. None for all.
            pin_versions: Whether to open each dataset once, on the driver, to get its version, schema and size.
            on_error: "report" to record failures in the report; "raise" to raise one error after all tables were tried.
            max_in_flight: Maximum number of concurrent calls; the namespace's policy is a limit, too.
            timeout: Seconds for the whole run, after which all remaining tables fail; None for no limit.
            progress: Whether to show a line on a terminal's stderr, or a function that is called with the finished
                steps and the total. A step is a describe or an open. The function runs in the background thread.

        Returns:
            The resolved tables in the order of the request, with a report about all others.

        Raises:
            InvalidInputError: The catalog cannot have such an id, an argument is invalid, or the resolver has an
                AsyncNamespace.
            LanceNamespaceError: With `on_error="raise"`, an item was not resolved; the class is that of the first
                error.

        Cost:
            Tables in the cache are not described or opened again. Otherwise listings of the namespaces that a pattern
            can match in, at most about one describe for each table, and one open for each dataset with `pin_versions`.
        """
        request = PrefetchRequest(
            Selection.read(what), on_error, max_in_flight, timeout, self._vends, where, pin_versions, progress
        )
        return self._run("prefetch", request)

    async def aprefetch(
        self,
        what: What,
        *,
        where: str | None = None,
        pin_versions: bool = True,
        on_error: Literal["report", "raise"] = "report",
        max_in_flight: int = IN_FLIGHT,
        timeout: float | None = None,
        progress: bool | ProgressCallback = True,
    ) -> Locations:
        """Resolves tables like `prefetch`, but without blocking the event loop; arguments and errors are the same.

        With a sync Namespace, the work runs in its background loop; a cancellation cancels it without waiting for its
        end. An AsyncNamespace is allowed.

        Args:
            what: As in `prefetch`.
            where: As in `prefetch`.
            pin_versions: As in `prefetch`.
            on_error: As in `prefetch`.
            max_in_flight: As in `prefetch`.
            timeout: As in `prefetch`.
            progress: As in `prefetch`.
        """
        request = PrefetchRequest(
            Selection.read(what), on_error, max_in_flight, timeout, self._vends, where, pin_versions, progress
        )
        return await self._arun(request)

    def refresh(
        self,
        locations: Locations,
        *,
        changes: Iterable[Change] = (),
        lasting: float = LASTING,
        on_error: Literal["report", "raise"] = "raise",
        max_in_flight: int = IN_FLIGHT,
        timeout: float | None = None,
    ) -> Locations:
        """Returns the same tables at the same versions, with storage options that are valid for `lasting` seconds.

        DataFrames made from the old locations keep the old storage options; make new ones from the result. For the
        newest versions use `prefetch(locations)`, in which cached tables keep their cached version; or pass `changes`.

        Args:
            locations: The locations to refresh.
            changes: Changes from a `watch`. Tables that were created, renamed or replaced, or have new versions, are
                resolved anew, at their latest versions if those of `locations` are pinned; dropped ones are left out.
            lasting: Minimum remaining lifetime of the storage options in seconds. A shorter one is accepted if the
                catalog issues no longer one.
            on_error: "raise" to raise one error after all tables were tried; "report" to leave failed tables out.
            max_in_flight: Maximum number of concurrent calls; the namespace's policy is a limit, too.
            timeout: Seconds for the whole run, after which all remaining tables fail; None for no limit.

        Returns:
            New locations, with a report.

        Raises:
            InvalidInputError: An argument is invalid, or the resolver has an AsyncNamespace.
            LanceNamespaceError: With `on_error="raise"`, a table does not exist, is at another location, or failed; the
                class is that of the first error.

        Cost:
            At most about one describe for each table that is not cached or whose storage options expire sooner; one
            open for each changed table.
        """
        request = self._refreshing(locations, changes, lasting, on_error, max_in_flight, timeout)
        return self._run("refresh", request)

    async def arefresh(
        self,
        locations: Locations,
        *,
        changes: Iterable[Change] = (),
        lasting: float = LASTING,
        on_error: Literal["report", "raise"] = "raise",
        max_in_flight: int = IN_FLIGHT,
        timeout: float | None = None,
    ) -> Locations:
        """Refreshes locations like `refresh`, but without blocking the event loop; arguments and errors are the same.

        `aprefetch` describes in which loop the work runs. An AsyncNamespace is allowed.

        Args:
            locations: As in `refresh`.
            changes: As in `refresh`.
            lasting: As in `refresh`.
            on_error: As in `refresh`.
            max_in_flight: As in `refresh`.
            timeout: As in `refresh`.
        """
        request = self._refreshing(locations, changes, lasting, on_error, max_in_flight, timeout)
        return await self._arun(request)

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
        renew: bool = False,
    ) -> WriteReport:
        """Writes a DataFrame to a table: executors write the files, and this process commits them as one version.

        Columns are compared by name before any job, and each batch is cast to the types of the table. If the job fails,
        nothing is committed, and the files of finished tasks and a table that was declared for the write are removed.
        Errors of the DataFrame itself are raised as Spark's errors. The call blocks until the commit is done.

        Args:
            df: The rows to write; not a stream.
            id: The table: a TableId, a sequence of names or a string.
            mode: "create" declares a new table. "ignore" does the same, but leaves an existing table unchanged.
                "append" adds rows to an existing table. "overwrite" replaces rows and columns in a new version, or
                creates the table.
            schema: Types for some or all columns of a new version, such as fixed-size lists for vectors. For other
                columns, an overwrite keeps a type of the table that is the same for Spark; the default is the type of
                the DataFrame.
            max_rows_per_file: Maximum number of rows in a file; None for Lance's default.
            max_bytes_per_file: Maximum size of a file in bytes; None for Lance's default.
            data_storage_version: The file format of a new table; None for the default of Lance. An existing table keeps
                its own.
            renew: Whether tasks renew credentials that expire, as in `Locations.dataframe`.

        Returns:
            The committed version and the number of written rows and fragments.

        Raises:
            InvalidInputError: An argument is invalid, the DataFrame has columns that cannot be stored, or the resolver
                has an AsyncNamespace.
            TableAlreadyExistsError: The table exists and `mode` is "create".
            TableNotFoundError: The table does not exist and `mode` is "append".
            TableSchemaValidationError: The columns do not match, or a value cannot be cast to the type of its column.
            ConcurrentModificationError: During the write, the table was moved or changed in conflict with the write.
            ImportError: pandas is not installed.

        Cost:
            One describe before the job, one after it, and a declare if the table is new.
        """
        from lance_ns_async.spark.write.write import MODES, Writing, write

        namespace = self._blocking("write", _JOB_BLOCKS)
        limits = {"max_rows_per_file": max_rows_per_file, "max_bytes_per_file": max_bytes_per_file}
        renewal = self._renewal if renew else None
        writing = Writing(requests.word(mode, "mode", MODES), schema, data_storage_version, limits, renewal)
        if not hasattr(df, "schema"):
            raise InvalidInputError(f"write: df is a {type(df).__name__}, not a Spark DataFrame; use write(df, id)")
        table = table_id(id)
        try:
            return write(namespace, df, table, writing)
        finally:
            self._cache.forget(Selection((table,), ()))

    def write_many(
        self,
        df: DataFrame,
        *,
        by: By,
        into: Into,
        mode: Literal["create", "append", "overwrite"] = "create",
        max_tables: int = 10_000,
        only: Iterable[str | Iterable[str]] | None = None,
        schema: pa.Schema | None = None,
        max_rows_per_file: int | None = None,
        max_bytes_per_file: int | None = None,
        data_storage_version: str | None = None,
        renew: bool = False,
        max_in_flight: int = IN_FLIGHT,
        progress: bool | ProgressCallback = True,
    ) -> Report:
        """Writes a DataFrame into one table for each value of a column, or of several columns or expressions.

        A first Spark job counts the rows of each value. The driver then checks all names, creates missing namespaces,
        declares missing tables in bulk, and a second job writes the files of all tables. The driver commits table by
        table: the failure of a table does not affect the others, and nothing of it is committed. Files of a failed
        write are removed, and so is a table that was declared for it. Executors make no call to the catalog.

        The DataFrame is evaluated twice, so cache one that is expensive or not deterministic. A table that does not get
        the counted number of rows fails.

        Args:
            df: The rows to write, including the columns in `by`; not a stream.
            by: A column name, a Column, or a sequence of these, of type string, integer, boolean or date.
            into: The namespace of the tables, whose names are the values, joined by `_` if there are several; or a
                function that gets the values and returns the id of their table. Missing namespaces are created.
            mode: "create" creates tables; an existing table with a version is unchanged, with the outcome "exists".
                "append" adds rows, and "overwrite" replaces rows and columns in a new version; both also create
                missing tables. In each mode, a table that was only declared gets its first version.
            max_tables: Maximum number of tables.
            only: The ids of the tables to write, such as `report.failed`; None for all.
            schema: Types for some or all columns, as in `write`.
            max_rows_per_file: Maximum number of rows in a file; None for Lance's default.
            max_bytes_per_file: Maximum size of a file in bytes; None for Lance's default.
            data_storage_version: The file format of new tables; None for the default of Lance.
            renew: Whether tasks renew credentials that expire, as in `Locations.dataframe`.
            max_in_flight: Maximum number of tables that are declared or committed concurrently.
            progress: Whether to show a line on a terminal's stderr, or a function that is called with the number of
                finished tables and the total. The function runs in the background thread.

        Returns:
            A report with a row for each table: "created", "appended", "replaced" or "exists", and "missing", "denied"
                or "failed" for errors. Rows of committed tables have the fields version, rows and fragments.

        Raises:
            InvalidInputError: Before anything is written: an argument is invalid, there are more than `max_tables`
                values, a value is null, empty or not safe as a name, two values have the same table, the DataFrame has
                columns that cannot be stored, or the resolver has an AsyncNamespace.
            ImportError: pandas is not installed.

        Cost:
            Two Spark jobs. A describe of each namespace. For each existing table, a describe before and one after the
            second job; for each new table, four describes and a declaration. The directory catalog declares 500 tables
            in one commit.
        """
        from lance_ns_async.spark.write.many import MODES, write_many
        from lance_ns_async.spark.write.write import Writing

        namespace = self._blocking("write_many", _JOB_BLOCKS)
        limits = {"max_rows_per_file": max_rows_per_file, "max_bytes_per_file": max_bytes_per_file}
        renewal = self._renewal if renew else None
        report = write_many(
            namespace,
            df,
            Writing(requests.word(mode, "mode", MODES), schema, data_storage_version, limits, renewal),
            by=by,
            into=into,
            max_tables=max_tables,
            only=None if only is None else {table_id(id) for id in only},
            max_in_flight=max_in_flight,
            progress=progress,
        )
        self._cache.forget(Selection(tuple(row.id for row in report.rows if isinstance(row.id, TableId)), ()))
        return report

    def forget(self, what: What | None = None) -> None:
        """Removes tables from the cache, so that the next prefetch requests them from the catalog.

        Args:
            what: Table ids, namespaces and patterns, as in `prefetch`; None for all tables.

        Raises:
            InvalidInputError: An item is neither a valid id nor a valid pattern.
        """
        self._cache.forget(None if what is None else Selection.read(what))

    def close(self) -> None:
        """Ends the renewal of credentials, and closes the namespace if the resolver owns it, as after `connect`.

        Repeated calls have no effect.
        """
        self._is_closed = True
        if self._brokers is not None:
            self._brokers.close()
        if self._owns and isinstance(self._namespace, Namespace):
            self._namespace.close()

    async def aclose(self) -> None:
        """Closes the resolver like `close`, without blocking the event loop."""
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

    def _refreshing(
        self,
        locations: Locations,
        changes: Iterable[Change],
        lasting: float,
        on_error: str,
        max_in_flight: int,
        timeout: float | None,
    ) -> PrefetchRequest:
        """Returns the request of a refresh; forgets what is cached of changed tables."""
        changed: dict[TableId, bool] = {}
        """Whether each changed table still exists."""
        for change in changes:
            if change.old_id is not None:
                changed[change.old_id] = False
            if isinstance(change.id, TableId) and change.error is None:
                changed[change.id] = change.kind != "dropped"
        self._cache.forget(Selection(tuple(changed), ()))
        previous = {id: location for id, location in locations.items() if id not in changed}
        return PrefetchRequest(
            Selection((*previous, *(id for id, exists in changed.items() if exists)), ()),
            on_error,
            max_in_flight,
            timeout,
            self._vends,
            pin_versions=not locations or any(it.version is not None for it in locations.values()),
            previous=previous,
            lasting=lasting,
        )

    def _run(self, name: str, request: PrefetchRequest) -> Locations:
        remedy = f"use `await resolver.a{name}(...)` there, or create the resolver with a Namespace"
        namespace = self._blocking(name, remedy)
        return Locations(*namespace.run(partial(prefetch, cache=self._cache, request=request)), renew=self._renewal)

    def _renewal(self, locations: Collection[Location], spark: SparkSession) -> Renewal:
        """Returns what renews the credentials of these tables in tasks; see `Locations.dataframe`."""
        from lance_ns_async.spark.broker import Brokers

        if self._is_closed:
            raise InvalidInputError("renew: the resolver is closed; keep it open until the job has ended")
        namespace = self._blocking("renew", "create the resolver with a Namespace")
        self._brokers = self._brokers or Brokers(namespace)
        return self._brokers.renewal(locations, spark)

    async def _arun(self, request: PrefetchRequest) -> Locations:
        work = partial(prefetch, cache=self._cache, request=request)
        if isinstance(self._namespace, AsyncNamespace):
            return Locations(*await work(self._namespace), renew=self._renewal)
        return Locations(*await self._namespace.arun(work), renew=self._renewal)

    def _blocking(self, name: str, remedy: str) -> Namespace:
        """Returns the sync namespace; raises InvalidInputError if the resolver has an AsyncNamespace."""
        if isinstance(self._namespace, AsyncNamespace):
            raise InvalidInputError(
                f"{name}: this resolver has an AsyncNamespace, which runs in its own event loop; {remedy}"
            )
        return self._namespace


def _check(ttl: float, remembers: int) -> None:
    if not ttl >= 0:
        raise InvalidInputError(f"ttl {ttl}: must be a number of seconds, at least 0; use 0 for no cache")
    if remembers < 0:
        raise InvalidInputError(f"remembers {remembers}: must be at least 0; use 0 for no cache")
