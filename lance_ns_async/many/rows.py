"""Operations on the rows of many tables at once: one search, and one count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.engine.list import TableFilter
from lance_ns_async.many import row_results
from lance_ns_async.many.each import open_each, without_absent
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.many.ranking import ROW_ID, Ranking, fuse
from lance_ns_async.many.row_results import RankedRows, RowCounts
from lance_ns_async.many.search import describe_selection, search
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.operations import requests, rows, searching
from lance_ns_async.progress import ProgressCallback, Steps, show_progress
from lance_ns_async.session import Session, traced
from lance_ns_async.spec.extensions import MAX_NAMES, SearchTablesRequest
from lance_ns_async.storage import arrow
from lance_ns_async.storage.sql_bounds import Texts
from lance_ns_async.storage.threads import aside

if TYPE_CHECKING:
    from lance import LanceDataset

S = TypeVar("S")
T = TypeVar("T")

_SHARE = 1 / 3  # The share of the time of an attempt that a server gets for one response to a search of many tables.

_INLINE = 1000  # The number of rows that are ranked in the event loop; more are ranked in a thread.


@traced
async def search_many(
    session: Session,
    /,
    what: What,
    *,
    vector: Sequence[float] | None = None,
    column: str | None = None,
    full_text: str | Mapping[str, Any] | None = None,
    k: int = 10,
    filter: str | None = None,
    columns: Sequence[str] | None = None,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
    include: TableFilter | None = None,
    **query: Any,
) -> RankedRows:
    """See `AsyncNamespace.search_many`; `include` returns whether a table may be searched."""
    queries = queries_by_column(vector, column, full_text, k=k, filter=filter, columns=columns, **query)
    rankings = {by: Ranking(by, k, descending=by == "_score") for by in queries}
    for request in queries.values():
        await session.check_sql(searching.texts(request))

    selection = Selection.read(what)
    tables = [*map(list, selection.ids), *(pattern.text for pattern in selection.patterns)]

    async def ask_for_all() -> RankedRows | None:
        request = SearchTablesRequest(
            tables=tables,
            vector=None if vector is None else [float(it) for it in vector],
            column=column,
            full_text=full_text if full_text is None or isinstance(full_text, str) else dict(full_text),
            k=k,
            filter=filter,
            columns=None if columns is None else list(columns),
            query_fields=query,
            timeout=timeout,
        )
        return await _search_by_server(session, request)

    # A server does not know which tables are included.
    asks_for_all = include is None and 1 <= len(tables) <= MAX_NAMES and _may_search(session)
    is_remote = session.backend.passes_on("query_table")

    async def ask(id: TableId) -> None:
        results = {}
        for by, request in queries.items():
            data = (await rows.query_table(session, request.model_copy(update={"id": list(id)}))).data
            results[by] = await aside(partial(arrow.content, cast("bytes", data)))
        await add(id, results)

    async def scan(table: Table) -> None:
        def run(dataset: LanceDataset) -> Mapping[str, pa.Table]:
            return {by: searching.find_rows(dataset, request) for by, request in queries.items()}

        with session.operation():
            results = await session.open_and_run(table, run)
        await add(table.id, results)

    async def add(id: TableId, results: Mapping[str, pa.Table]) -> None:
        # Only now that all searches of the table have succeeded, so that no row of a failed table is in the result.
        def work() -> None:
            for by, nearest in results.items():
                rankings[by].add(str(id), nearest)

        if k > _INLINE:
            await aside(work)
        else:
            work()

    with session.within(timeout), show_progress(progress, "search tables") as show:
        if asks_for_all and (ranked := await ask_for_all()) is not None:
            return ranked
        work = TableWork(session, selection, max_in_flight, show, include)
        searched = await (work.on_ids(ask) if is_remote else work.on_tables(scan))
    # After the end of the operation's time, too: its result is what was found until then.
    with_row_id = bool(query.get("with_row_id"))
    best = await aside(lambda: result({by: it.rows() for by, it in rankings.items()}, k, with_row_id=with_row_id))
    return RankedRows(best, list(searched), work.errors)


def _may_search(session: Session) -> bool:
    """Returns whether the server may be able to search many tables by one request."""
    return session.backend.passes_on("search_many") and not session.backend.server.lacks("search_many")


async def _search_by_server(session: Session, request: SearchTablesRequest) -> RankedRows | None:
    """Returns what the server has found; None if its tables must be searched one by one.

    This is so if it does not have the operation, needs too much time for one response, or fails as a whole: then each
    table gets its error.
    """
    within = session.caller.policy.attempt_timeout * _SHARE
    is_limited = request.timeout is not None and request.timeout <= within
    if not is_limited:
        request = request.model_copy(update={"timeout": within})
    try:
        response = await requests.pass_on(session, "search_many", request)
    except err.InvalidInputError:
        raise
    except err.LanceNamespaceError as e:
        if isinstance(e, err.UnsupportedOperationError):
            # Only servers of this package have it.
            session.backend.server.learn(missing=frozenset({"search_many"}))
        return None
    ranked, is_complete = await aside(partial(row_results.decode, response.data))
    return ranked if is_complete or is_limited else None


def result(rankings: Mapping[str, pa.Table], k: int, *, with_row_id: bool = False) -> pa.Table:
    """Returns the rows of a search, from those of its rankings by the column that they rank by."""
    if len(rankings) == 2:
        rows = fuse(rankings["_distance"], rankings["_score"], k)
    else:
        (rows,) = rankings.values()
    return rows.drop_columns([ROW_ID]) if ROW_ID in rows.column_names and not with_row_id else rows


def queries_by_column(
    vector: Sequence[float] | None,
    column: str | None,
    full_text: str | Mapping[str, Any] | None,
    *,
    columns: Sequence[str] | None,
    **query: Any,
) -> dict[str, spec.QueryTableRequest]:
    """Returns the query by vector and the one by text, by the column that they rank by.

    Args:
        vector: See `search_many`, like the following.
        column: The column of the vectors.
        full_text: The words, or a `full_text_query` of the spec.
        columns: The names of the columns.
        **query: Further fields of both queries.
    """
    for name in query:
        if (own := requests.synonym(name, ("vector", "full_text", "k", "filter"))) not in (None, name):
            raise err.InvalidInputError(f"{name}: unknown; use {own}")
    if vector is None and full_text is None:
        raise err.InvalidInputError("vector: pass a vector, a full_text, or both")
    if wrong := sorted({"id", "offset", "version", "branch", "vector_column"} & query.keys()):
        raise err.InvalidInputError(f"{wrong[0]}: not supported in a search of many tables; omit it")
    is_hybrid = vector is not None and full_text is not None
    # The rows of two rankings are told apart by their ids.
    common = {"prefilter": True, **query, **({"with_row_id": True} if is_hybrid else {})}
    common["columns"] = None if columns is None else {"column_names": list(columns)}
    queries: dict[str, dict[str, Any]] = {}
    if vector is not None:
        values = [float(it) for it in vector]
        queries["_distance"] = {**common, "vector": {"single_vector": values}, "vector_column": column}
    if full_text is not None:
        text = {"string_query": {"query": full_text}} if isinstance(full_text, str) else full_text
        others = {name: value for name, value in common.items() if name not in searching.OF_VECTORS}
        queries["_score"] = {**others, "vector": {}, "full_text_query": text}
    requests_by_column = {by: requests.parse(spec.QueryTableRequest, fields) for by, fields in queries.items()}
    for request in requests_by_column.values():
        searching.check(request)
    return requests_by_column


@traced
async def count_many(
    session: Session,
    what: What,
    *,
    filter: str | None = None,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> RowCounts:
    """See `AsyncNamespace.count_many`."""
    await session.check_sql(Texts({"filter": filter}))

    async def ask(id: TableId) -> int:
        request = spec.CountTableRowsRequest(id=list(id), predicate=filter)
        return (await rows.count_table_rows(session, request)).count or 0

    async def count(table: Table) -> int:
        with session.operation():
            return await session.open_and_run(table, lambda dataset: searching.count(dataset, filter))

    with session.within(timeout), show_progress(progress, "count rows") as show:
        work = TableWork(session, Selection.read(what), max_in_flight, show)
        counts = await (work.on_ids(ask) if session.backend.passes_on("count_table_rows") else work.on_tables(count))
    return RowCounts(counts, work.errors)


class TableWork:
    """Work on each selected table, concurrently; the failure of one does not affect the others."""

    def __init__(
        self,
        session: Session,
        selection: Selection,
        max_in_flight: int | None,
        progress: ProgressCallback,
        include: TableFilter | None = None,
    ) -> None:
        self.errors: dict[TableId | NamespaceId, err.LanceNamespaceError] = {}
        self._session = session
        self._selection = selection
        self._include = include
        self._requested = dict.fromkeys(session.table(id) for id in self._selection.ids)
        self._workers = session.workers(max_in_flight)
        self._progress = progress

    async def on_ids(self, work: Callable[[TableId], Awaitable[T]]) -> Mapping[TableId, T]:
        """Returns the results of work that needs only the id of a table."""
        matches = await search(
            self._session, self._selection.patterns, max_in_flight=self._workers, include=self._include
        )
        self.errors.update(matches.errors.items())
        self.errors.update(matches.doubtful.items())
        ids = filter(self._include, dict.fromkeys([*matches.tables, *matches.guesses, *self._requested]))
        return await self._each({id: id for id in ids}, work)

    async def on_tables(self, work: Callable[[Table], Awaitable[T]]) -> Mapping[TableId, T]:
        """Returns the results of work that needs the location of a table, with credentials."""
        selected = await describe_selection(
            self._session, self._selection, max_in_flight=self._workers, with_credentials=True, include=self._include
        )
        self.errors.update(selected.errors)
        self.errors.update(selected.missing.items())
        return await self._each(selected.tables, work)

    async def _each(self, items: Mapping[TableId, S], work: Callable[[S], Awaitable[T]]) -> Mapping[TableId, T]:
        refusal: err.UnauthenticatedError | None = None

        async def run(item: S) -> T:
            nonlocal refusal
            if refusal is not None:
                # A 401 applies to every table.
                raise refusal
            try:
                return await work(item)
            except err.UnauthenticatedError as e:
                refusal = e
                raise

        steps = Steps(len(items), self._progress)
        result = await open_each(items, run, max_in_flight=self._workers, progress=steps.advance)
        self.errors.update(without_absent(result.errors, self._selection).items())
        return result.tables
