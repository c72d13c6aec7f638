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
class Resolved:
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


def resolve(catalog: Namespace, wanted: Sequence[TableId]) -> Resolved:
    """Resolves the tables, then describes a sample of them one by one; raises the first error.

    Neither time includes the first connection.
    """
    from lance_ns_async.spark import LocationResolver

    catalog.exists(wanted[0])
    resolver = LocationResolver(catalog)
    located = resolver.prefetch(wanted, pin_versions=False, on_error="raise")
    # The resolver keeps the locations, so the second call only opens the tables.
    opened = resolver.prefetch(wanted, on_error="raise")
    sample = wanted[:: max(1, len(wanted) // SAMPLE)][:SAMPLE]
    one_by_one = _describe(catalog, sample) / len(sample) * len(wanted)
    return Resolved(
        opened, located.report.seconds, located.report.calls, opened.report.seconds, one_by_one, len(sample)
    )


def _describe(catalog: Namespace, ids: Sequence[TableId]) -> float:
    from lance_namespace import DescribeTableRequest

    requests = [DescribeTableRequest(id=list(id)) for id in ids]
    with progress("describing one by one", len(requests)) as bar:
        started = perf_counter()
        for request in requests:
            catalog.describe_table(request)
            bar.advance()
        return perf_counter() - started
