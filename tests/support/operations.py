"""The operations of the spec that each catalog supports, according to the code, for the documentation. `python -m
tests.documentation` writes the table into the page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError

from lance_ns_async import TableId, registry
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.operations import requests
from tests.documentation.pages import Page, catalog_page

PAGE = "operations.md"

OPERATIONS = [
    name
    for name in vars(LanceNamespace)
    # The former returns the catalog's name, and the latter is an older name of declare_table.
    if not name.startswith("_") and name not in ("namespace_id", "create_empty_table")
]
"""The operations of the spec, in its order."""

NEEDS_COMMITS = ("create_table_version", "batch_create_table_versions", "batch_commit_tables")
"""Operations that only a catalog with `commits_versions` supports."""

NO_COMMITS = "versions are committed in the storage, by Lance"
NAMES = {impl: entry.title for impl, entry in registry.BACKENDS.items()}  # The titles of the columns
_OLD, _NEW = TableId(["c", "d", "old"]), TableId(["c", "d", "new"])
_BLOCK = re.compile(r"(<!-- operations -->\n).*(<!-- /operations -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Row:
    """An operation, and the reason why each catalog does not support it; None if it does."""

    operation: str
    reasons: Mapping[str, str | None]


def rows() -> Sequence[Row]:
    backends = {impl: _backend(impl) for impl in registry.BACKENDS}
    return [Row(name, {impl: _reason(name, backend) for impl, backend in backends.items()}) for name in OPERATIONS]


def table() -> str:
    result, impls = rows(), list(registry.BACKENDS)
    notes = list(dict.fromkeys(reason for row in result for reason in row.reasons.values() if reason is not None))
    lines = [
        f"| operation | {' | '.join(f'[{NAMES[impl]}]({catalog_page(impl).name})' for impl in impls)} |",
        f"|---|{'---|' * len(impls)}",
    ]
    for row in result:
        if any(row.reasons.values()):
            cells = ["yes" if why is None else f"no ({notes.index(why) + 1})" for why in row.reasons.values()]
            lines.append(f"| `{row.operation}` | {' | '.join(cells)} |")
    counts = [sum(row.reasons[impl] is None for row in result) for impl in impls]
    lines += [f"| **served of {len(result)}** | {' | '.join(f'**{count}**' for count in counts)} |", ""]
    others = ", ".join(f"`{row.operation}`" for row in result if not any(row.reasons.values()))
    lines += [*(f"{number}. {note}" for number, note in enumerate(notes, 1)), "", "All catalogs have the others:"]
    return "\n".join([*lines, *wrap(f"{others}.", 120), ""])


def written() -> str:
    return _BLOCK.sub(lambda match: f"{match[1]}{table()}{match[2]}", Page(PAGE).text)


def _reason(operation: str, backend: Backend) -> str | None:
    if backend.passes_on(operation):
        return None
    if operation in requests.REASONS:
        return requests.REASONS[operation]
    if operation in NEEDS_COMMITS and not backend.capabilities.commits_versions:
        return NO_COMMITS
    return asyncio.run(_renaming(backend)) if operation == "rename_table" else None


async def _renaming(backend: Backend) -> str | None:
    """Returns the reason why a catalog renames no table, from its error; there is no server."""
    try:
        await backend.rename_table(_OLD, _NEW)
    except UnsupportedOperationError as e:
        match = re.fullmatch(rf"Not supported: rename_table of {re.escape(str(_OLD))} \((.*)\)", str(e))
        assert match is not None, e
        return match[1].replace(str(_NEW), "the new name")
    except LanceNamespaceError:
        return None
    finally:
        await backend.aclose()
    raise AssertionError("a catalog that is not there has renamed a table")


def _backend(impl: str) -> Backend:
    backend_class = registry.load(impl)
    policy = Policy(max_retries=0, attempt_timeout=1, operation_timeout=1)
    return backend_class.open(
        backend_class.settings.parse(registry.BACKENDS[impl].example), Caller(policy, backend_class.errors)
    )
