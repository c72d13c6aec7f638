"""The operations on whole lakes for sync namespaces, with the arguments of the async functions.

The coroutine runs on the background loop of the namespaces. Callbacks, such as `progress`, run in its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.fleet import audits, copies, discovery, dropped_tables, table_search
from lance_ns_async.fleet.maintenance import daemon
from lance_ns_async.fleet.maintenance import run as maintenance
from lance_ns_async.sync import Namespace

P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    operation: Callable[Concatenate[AsyncNamespace, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Namespace, P], T]:
    """Returns an operation on one catalog as a function that waits for its result."""

    @wraps(operation)
    def wait(namespace: Namespace, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return namespace.run(lambda client: operation(client, *args, **kwargs))

    return wait


def blocking_between(
    operation: Callable[Concatenate[AsyncNamespace, AsyncNamespace, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Namespace, Namespace, P], T]:
    """Returns an operation on two catalogs as a function that waits for its result."""

    @wraps(operation)
    def wait(source: Namespace, target: Namespace, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # All sync namespaces share one loop, so that the coroutine can use both.
        return source.run(lambda first: target.arun(lambda second: operation(first, second, *args, **kwargs)))

    return wait


# Type checkers take the inferred type of a final name as its declared one.
audit: Final = blocking(audits.audit)
copy: Final = blocking_between(copies.copy)
discover: Final = blocking(discovery.discover)
dropped: Final = blocking(dropped_tables.dropped)
find: Final = blocking(table_search.find)
maintain: Final = blocking(maintenance.maintain)
maintain_forever: Final = blocking(daemon.maintain_forever)
plan_maintenance: Final = blocking(maintenance.plan_maintenance)
purge: Final = blocking(dropped_tables.purge)
undrop: Final = blocking(dropped_tables.undrop)
undrop_many: Final = blocking(dropped_tables.undrop_many)


def __dir__() -> list[str]:
    own = ["audit", "copy", "discover", "dropped", "find", "maintain"]
    return [*own, "maintain_forever", "plan_maintenance", "purge", "undrop", "undrop_many"]
