"""Operations on whole lakes: thousands of tables of a catalog, or of two, in one call.

Each operation is an async function whose first arguments are async namespaces, and returns a `Report`. `fleet.sync` has
the same functions for sync namespaces. An operation

- has a module of its own, whose name differs from the function's, because the package has the function as attribute;
- uses bulk calls and `calls.tasks.each`, never more calls in flight than the policy of a namespace allows;
- collects rows, counters and costs in a `fleet.run.Run`, and returns its report;
- records what it has finished in a `fleet.journal.Journal`, if the caller passes a file, and skips that in a new run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_ns_async.fleet.audits import audit
    from lance_ns_async.fleet.copies import copy
    from lance_ns_async.fleet.discovery import discover
    from lance_ns_async.fleet.dropped_tables import dropped, purge, undrop, undrop_many
    from lance_ns_async.fleet.maintenance.daemon import MaintenanceStatus, maintain_forever
    from lance_ns_async.fleet.maintenance.plan import (
        CleanupOptions,
        CompactOptions,
        IndexOptions,
        MaintenancePlan,
        TablePlan,
    )
    from lance_ns_async.fleet.maintenance.run import maintain, plan_maintenance
    from lance_ns_async.fleet.run import Report
    from lance_ns_async.fleet.table_search import Conditions, find
    from lance_ns_async.tabular import Row

__all__ = [
    "CleanupOptions",
    "CompactOptions",
    "Conditions",
    "IndexOptions",
    "MaintenancePlan",
    "MaintenanceStatus",
    "Report",
    "Row",
    "TablePlan",
    "audit",
    "copy",
    "discover",
    "dropped",
    "find",
    "maintain",
    "maintain_forever",
    "plan_maintenance",
    "purge",
    "undrop",
    "undrop_many",
]

# Loaded at the first access, as in the package itself.
_HOMES = {
    "CleanupOptions": "maintenance.plan",
    "CompactOptions": "maintenance.plan",
    "Conditions": "table_search",
    "IndexOptions": "maintenance.plan",
    "MaintenancePlan": "maintenance.plan",
    "MaintenanceStatus": "maintenance.daemon",
    "Report": "run",
    "Row": "run",
    "TablePlan": "maintenance.plan",
    "audit": "audits",
    "copy": "copies",
    "discover": "discovery",
    "dropped": "dropped_tables",
    "find": "table_search",
    "maintain": "maintenance.run",
    "maintain_forever": "maintenance.daemon",
    "plan_maintenance": "maintenance.run",
    "purge": "dropped_tables",
    "undrop": "dropped_tables",
    "undrop_many": "dropped_tables",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
