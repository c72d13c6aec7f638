"""Counts of a report as tests compare them."""

from __future__ import annotations

from lance_ns_async.fleet.run import Report


def table_counts(report: Report) -> dict[str, int]:
    """Returns the number of tables by outcome, without the rows about what a target does not keep."""
    return {outcome: count for outcome, count in report.counts.items() if outcome != "not kept"}
