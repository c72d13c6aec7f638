"""Resolving the demo's tables side by side, and what one client that asks one by one would have taken."""

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
"""Tables that are described one after another."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where the tables are, and what it cost to know; times are seconds."""

    locations: Locations
    resolving: float
    """To ask the catalog where all of them are."""
    calls: int
    """Remote calls that took."""
    opening: float
    """To open all of them once, for versions and columns."""
    one_by_one: float
    """To describe all of them one after another, projected from the sample."""
    sample: int


def resolve(catalog: Namespace, wanted: Sequence[TableId]) -> Resolved:
    """Resolves the tables, then describes a few one by one; raises what the first of them fails with.

    Neither of the two pays for the first connection.
    """
    from lance_ns_async.spark import LocationResolver

    catalog.exists(wanted[0])
    resolver = LocationResolver(catalog)
    located = resolver.prefetch(wanted, pin_versions=False, on_error="raise")
    # The resolver remembers where they are, so all that is left is to open them.
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
