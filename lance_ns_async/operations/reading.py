"""Reads of datasets: row counts, queries, query plans and statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lance_namespace import GetTableStatsResponse
from lance_namespace_urllib3_client.models.fragment_stats import FragmentStats
from lance_namespace_urllib3_client.models.fragment_summary import FragmentSummary

from lance_ns_async.operations import searching
from lance_ns_async.storage import arrow, guard
from lance_ns_async.storage.guard import Query
from lance_ns_async.storage.sql_bounds import Texts

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset


def count(dataset: LanceDataset, predicate: str | None) -> int:
    """Returns the number of rows that match; all rows if the predicate is None."""
    guard.current().check_built_values(dataset, Texts({"predicate": predicate}))
    rows: int = dataset.count_rows(filter=predicate)
    return rows


def query(dataset: LanceDataset, request: Query) -> bytes:
    """Returns the rows of a query as an Arrow IPC file."""
    _check_built_values(dataset, request)
    return arrow.file(searching.scan(dataset, request).to_reader())


def search(dataset: LanceDataset, request: Query) -> pa.Table:
    """Returns the rows of a query."""
    _check_built_values(dataset, request)
    return arrow.table(searching.scan(dataset, request).to_reader())


def explain(dataset: LanceDataset, request: Query, *, verbose: bool) -> str:
    """Returns the plan of a query."""
    plan: str = searching.scan(dataset, request).explain_plan(verbose)
    return plan


def analyze(dataset: LanceDataset, request: Query) -> str:
    """Runs a query; returns its plan with the metrics of each step."""
    _check_built_values(dataset, request)
    plan: str = searching.scan(dataset, request).analyze_plan()
    return plan


def _check_built_values(dataset: LanceDataset, request: Query) -> None:
    """Checks the values that a query builds; for a search, which may return any rows, on all rows."""
    plain = not searching.is_search(request)
    first = request.k + (request.offset or 0) if plain else None
    guard.current().check_built_values(
        dataset, searching.texts(request), request.filter if plain else None, first=first
    )


def stats(dataset: LanceDataset) -> GetTableStatsResponse:
    """Returns the statistics of the table and its fragments."""
    rows = sorted(fragment.count_rows() for fragment in dataset.get_fragments())
    dataset_stats, data_stats = dataset.stats.dataset_stats(), cast(Any, dataset.stats.data_stats())

    def at(percent: int) -> int:
        """Returns the percentile of the fragments' lengths."""
        return rows[min(len(rows) * percent // 100, len(rows) - 1)] if rows else 0

    return GetTableStatsResponse(
        total_bytes=sum(field.bytes_on_disk for field in data_stats.fields),
        num_rows=sum(rows),
        num_indices=len(dataset.describe_indices()),
        fragment_stats=FragmentStats(
            num_fragments=dataset_stats["num_fragments"],
            num_small_fragments=dataset_stats["num_small_files"],
            lengths=FragmentSummary(
                min=at(0),
                max=at(100),
                mean=sum(rows) // len(rows) if rows else 0,
                p25=at(25),
                p50=at(50),
                p75=at(75),
                p99=at(99),
            ),
        ),
    )
