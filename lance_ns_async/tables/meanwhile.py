"""What others did to a table while its files were read or written."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    LanceNamespaceError,
    TableNotFoundError,
    TableVersionNotFoundError,
)

from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Table, is_same

_FOLDER_GONE = re.compile("failed to persist temp file .*No such file or directory")
"""A data file that Lance had no folder for; files are made before a version is committed that names them."""


@asynccontextmanager
async def explained(backend: Backend, table: Table, *, makes: bool = False) -> AsyncIterator[None]:
    """Tells a table that somebody has removed from one whose files are damaged.

    Where the block, which works on the table's files, fails because a version or a file is missing, or for a reason
    that nobody knows, the catalog is asked whether it still has that table.

    Args:
        table: As it was located for the block.
        makes: Whether what failed would make the table where there is none.

    Raises:
        TableNotFoundError: The table was dropped, renamed or deregistered meanwhile.
        ConcurrentModificationError: The same, where that `makes` the table; or its registration changed meanwhile; or
            a file could not be written because another process had deleted an empty folder.

    Cost: a describe, if the block fails so.
    """
    try:
        yield
    except (TableVersionNotFoundError, InternalError) as e:
        explanation = await _explanation(backend, table, e, makes)
        if explanation is None:
            raise
        raise explanation from e


async def _explanation(
    backend: Backend, table: Table, error: LanceNamespaceError, makes: bool
) -> LanceNamespaceError | None:
    kind: type[LanceNamespaceError] = ConcurrentModificationError
    try:
        if is_same(table, await backend.describe_table(table.id)):
            if not _FOLDER_GONE.search(str(error)):
                return None
            what = "another process deleted an empty folder there meanwhile; nothing was written; try again"
        else:
            what = "its registration changed meanwhile; try again"
    except TableNotFoundError:
        kind = ConcurrentModificationError if makes else TableNotFoundError
        what = "it was dropped, renamed or deregistered meanwhile" + ("; try again" if makes else "")
    except LanceNamespaceError:
        # What is known is the error itself.
        return None
    return kind(f"{PHRASES[kind]}: {table.id} (work on its files at {table.location} failed, and {what})")
