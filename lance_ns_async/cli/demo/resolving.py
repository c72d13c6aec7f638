"""Resolution of the demo's tables, with a projected time for describing them one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from lance_ns_async.cli.progress import progress

if TYPE_CHECKING:
    from lance_ns_async import Namespace, TableId
    from lance_ns_async.spark import Locations

SAMPLE = 50
"""Number of tables that are described one by one."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The locations of the tables, and the cost of their resolution; times are in seconds."""

    locations: Locations
    resolving: float
    """Time to get all locations from the catalog."""
    calls: int
    """Number of remote calls for the locations."""
    opening: float
    """Time to open all tables once, for versions and columns."""
    one_by_one: float
    """Time to describe all tables one by one, projected from the sample."""
    sample: int


def resolve(catalog: Namespace, ids: Sequence[TableId]) -> Resolution:
    """Resolves the tables, then describes a sample of them one by one; raises the first error.

    Neither time includes the first connection.
    """
    from lance_ns_async.spark import LocationResolver

    catalog.exists(ids[0])
    resolver = LocationResolver(catalog)
    in_catalog = resolver.prefetch(ids, pin_versions=False, on_error="raise")
    # The resolver keeps the locations, so the second call only opens the tables.
    with_versions = resolver.prefetch(ids, on_error="raise")
    sample = ids[:: max(1, len(ids) // SAMPLE)][:SAMPLE]
    one_by_one = _describe(catalog, sample) / len(sample) * len(ids)
    return Resolution(
        with_versions,
        in_catalog.report.seconds,
        in_catalog.report.calls,
        with_versions.report.seconds,
        one_by_one,
        len(sample),
    )


def _describe(catalog: Namespace, ids: Sequence[TableId]) -> float:
    from lance_namespace import DescribeTableRequest

    requests = [DescribeTableRequest(id=list(id)) for id in ids]
    with progress("describing one by one", len(requests)) as bar:
        start = perf_counter()
        for request in requests:
            catalog.describe_table(request)
            bar.advance()
        return perf_counter() - start
