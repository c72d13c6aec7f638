"""Detection of concurrent changes to a table whose files were being read or written."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import lance_namespace.errors as err

from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Table, is_same

_FOLDER_GONE = re.compile("failed to persist temp file .*No such file")
"""Lance's error for a missing folder of a data file; data files are written before the commit of their version."""


@asynccontextmanager
async def explain_conflict(backend: Backend, table: Table, *, makes: bool = False) -> AsyncIterator[None]:
    """Distinguishes a table that another client removed from a table with damaged files.

    If the block, which uses the table's files, fails because of a missing version or file, or with an internal error, a
    describe checks whether the catalog still has the same table.

    Args:
        backend: The catalog.
        table: The table as it was located for the block.
        makes: Whether the block creates the table if it does not exist.

    Cost: a describe after such a failure.
    """
    try:
        yield
    except (err.TableVersionNotFoundError, err.InternalError) as e:
        explanation = await _explanation(backend, table, e, makes)
        if explanation is None:
            raise
        raise explanation from e


async def _explanation(
    backend: Backend, table: Table, error: err.LanceNamespaceError, makes: bool
) -> err.LanceNamespaceError | None:
    kind: type[err.LanceNamespaceError] = err.ConcurrentModificationError
    try:
        if is_same(table, await backend.describe_table(table.id)):
            if not _FOLDER_GONE.search(str(error)):
                return None
            what = "another process deleted an empty folder there meanwhile; nothing was written; try again"
        else:
            what = "its registration changed meanwhile; try again"
    except err.TableNotFoundError:
        kind = err.ConcurrentModificationError if makes else err.TableNotFoundError
        what = "it was dropped, renamed or deregistered meanwhile" + ("; try again" if makes else "")
    except err.LanceNamespaceError:
        # The original error is the best explanation.
        return None
    return kind(f"{PHRASES[kind]}: {table.id} (work on its files at {table.location} failed, and {what})")
