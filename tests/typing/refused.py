"""User code that must not type-check: mypy reports an `ignore` without an error as an error itself."""

from __future__ import annotations

from lance_ns_async import AsyncNamespace, DirNamespace, Policy, Table


def forgets_to_await(ns: AsyncNamespace) -> object:
    """Reads an attribute of a coroutine."""
    return ns.describe_table({"id": ["t"]}).location  # type: ignore[attr-defined]


def awaits_the_sync_namespace(ns: DirNamespace) -> None:
    """Iterates a sync iterator as an async one."""

    async def main() -> None:
        async for _ in ns.iter_tables():  # type: ignore[attr-defined]
            pass


def changes_a_result(table: Table) -> None:
    """Assigns to an immutable value."""
    table.location = "elsewhere"  # type: ignore[misc]


async def mistakes_types(ns: AsyncNamespace) -> None:
    """Passes values of wrong types."""
    await ns.exists(3)  # type: ignore[arg-type]
    await ns.write(["t"], [], mode="replace")  # type: ignore[arg-type]
    Policy(max_in_flight="8")  # type: ignore[arg-type]
    Policy(retries=3)  # type: ignore[call-arg]
