"""Creating tables: declared in the catalog, then written; what fails is undone in both.

Of several that create one table, the catalog lets one declare it. So whoever declared it may undo that, unless
another has written to it meanwhile, and one that is registered is there, even if nothing was written to it yet.
"""

from __future__ import annotations

import os
from asyncio import CancelledError
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async import marks, replacing, storage
from lance_ns_async.backends.base import Backend
from lance_ns_async.locating import located
from lance_ns_async.model import Table, TableId
from lance_ns_async.policy import undoing
from lance_ns_async.tables import first, names
from lance_ns_async.tables.opening import Opener
from lance_ns_async.threads import in_thread, under_way

if TYPE_CHECKING:
    from lance import LanceDataset


_TIMES = 3
"""How often an overwrite that others were quicker than is tried again."""


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be written, and what the catalog is told of it."""

    data: Any
    """Arrow data with a schema: a table, a batch, a reader, a dataset."""
    properties: Mapping[str, str] | None = None
    """None to leave those of a table that is there as they are."""
    options: Mapping[str, str] | None = None
    """Storage options that go before those of the catalog, for this write."""

    def __post_init__(self) -> None:
        names.check(self.schema.names, "columns")

    def place(self, table: Table) -> Table:
        """The table as it is written to."""
        return (
            replace(table, storage_options={**(table.storage_options or {}), **self.options}) if self.options else table
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.data.schema

    @property
    def lasts(self) -> bool:
        """Whether its rows can be read more than once."""
        return not isinstance(self.data, pa.RecordBatchReader)


@dataclass(frozen=True, slots=True)
class Made:
    """A table and its dataset; None where nothing was written to it yet."""

    table: Table
    dataset: LanceDataset | None


async def create(backend: Backend, opener: Opener, id: TableId, content: Content) -> Made:
    """Declares a table that must not exist yet, and writes its first version; if that fails neither stays."""
    table = await declared(backend, id, content)
    place = content.place(table)

    def work() -> LanceDataset:
        try:
            return first.create(opener, place, content.data)
        finally:
            if under_way().given_up.is_set():
                # The declaration was taken back before the last file was gone.
                marks.remove(place.location, place.storage_options)

    try:
        dataset = await in_thread(place, work, changes=True, reads=True)
    except TableAlreadyExistsError:
        # Somebody else has written to it.
        raise
    except (LanceNamespaceError, CancelledError) as e:
        await undo(backend, place, e, written=True)
        raise
    return Made(table, dataset)


async def declared(backend: Backend, id: TableId, content: Content) -> Table:
    """A table that is registered just now, at a place where nothing is, with what it takes to write there."""
    try:
        table = await backend.declare_table(id, None, content.properties or {}, content.schema)
    except TableAlreadyExistsError as e:
        raise TableAlreadyExistsError(f"{e}; append to it, overwrite it, or drop it first") from e
    async with undone_if_it_fails(backend, table):
        # Described, it comes with credentials.
        table = await located(backend, id)
        await check_empty(content.place(table))
    return table


@asynccontextmanager
async def undone_if_it_fails(backend: Backend, table: Table) -> AsyncIterator[None]:
    """Takes a declaration back, to which nothing was written, where what is done with it fails."""
    try:
        yield
    except (LanceNamespaceError, CancelledError) as e:
        await undo(backend, table, e, written=False)
        raise


CREDENTIALS = {
    "abfss": ("AZURE_STORAGE_ACCOUNT_NAME",),
    "az": ("AZURE_STORAGE_ACCOUNT_NAME",),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"),
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ),
}
"""By scheme, the variables of the environment by one of which Lance reaches a storage without being told more."""


def is_at_hand(table: Table) -> bool:
    """Whether its storage can be looked at: it is local, or it was told how to reach it, or the environment tells.

    Else Lance would ask the machine it runs on, which takes seconds where there is no answer.
    """
    scheme, remote, _ = table.location.partition("://")
    if table.storage_options or not remote or scheme == "file":
        return True
    return any(os.environ.get(name) for name in CREDENTIALS.get(scheme, ()))


class DataThereError(TableAlreadyExistsError):
    """There is data where a table would go, of which the catalog knows nothing."""


async def check_empty(table: Table) -> None:
    """Raises TableAlreadyExistsError where there is data, and what the storage says where it cannot be looked at.

    That may be of a table that was renamed, whose name is free again. Costs an open.
    """
    if not await storage.is_only_declared(table):
        raise DataThereError(
            f"Table already exists: {table.id} (not in the catalog, but at {table.location} there is data; register it "
            "there, give another location, or remove it)"
        )


async def keep_or_create(backend: Backend, opener: Opener, id: TableId, content: Content) -> Made:
    """The table that is there, or else one created."""
    try:
        return await create(backend, opener, id, content)
    except TableAlreadyExistsError as e:
        try:
            table = await located(backend, id)
        except TableNotFoundError:
            raise e from None
    try:
        return Made(table, await in_thread(table, lambda: opener.open(table)))
    except TableNotFoundError:
        return Made(table, None)


async def overwrite(backend: Backend, opener: Opener, id: TableId, content: Content) -> Made:
    """Writes a version that replaces all rows and columns of a table, or creates it.

    It is registered anew where its catalog is told other properties or columns than it keeps. Old versions stay.
    """
    for _ in range(_TIMES if content.lasts else 0):
        try:
            return await _overwritten(backend, opener, id, content)
        except DataThereError:
            raise
        except TableAlreadyExistsError:
            # Somebody else may be about to write its first version.
            continue
    return await _overwritten(backend, opener, id, content)


async def _overwritten(backend: Backend, opener: Opener, id: TableId, content: Content) -> Made:
    try:
        old = await located(backend, id)
    except TableNotFoundError:
        return await create(backend, opener, id, content)
    table = await registered_anew(backend, old, content)
    place = content.place(table)
    try:
        dataset = await in_thread(place, lambda: opener.overwrite(place, content.data), changes=True, reads=True)
    except (LanceNamespaceError, CancelledError) as e:
        if table is not old:
            await replacing.put_back(backend, old, e, instead=(table.location, table.properties or {}))
        raise
    return Made(table, dataset)


@undoing
async def undo(backend: Backend, table: Table, error: BaseException, *, written: bool) -> None:
    """Takes a declaration back; where that fails, or a `written` one has a version by now, the error says so."""
    try:
        if written and not await storage.is_only_declared(table):
            error.add_note(f"and table {table.id} is there, for all that: a version of it was written")
            return
        await backend.deregister_table(table.id)
        if written and await storage.is_only_declared(table):
            await storage.tidy(table)
        elif written:
            # Somebody has written to it just now.
            await backend.declare_table(table.id, table.location, table.properties or {}, table.schema)
    except LanceNamespaceError as e:
        error.add_note(f"and of table {table.id} is left: its registration at {table.location} ({e})")


async def registered_anew(backend: Backend, old: Table, content: Content) -> Table:
    """The table, with the properties and columns it is to have; itself where it has them already."""
    kept, wanted = old.properties or {}, content.properties or {}
    same = all(kept.get(key) == value for key, value in wanted.items())
    if same and (old.schema is None or old.schema.equals(content.schema)):
        return old
    if old.managed_versioning:
        raise InvalidInputError(
            f"table {old.id}: its catalog commits its versions, and would forget them with other properties; "
            "leave the properties out, or drop the table first"
        )
    properties = wanted if content.properties is not None else kept
    backend.check_declaration(old.id, old.location, properties)
    await replacing.registered(backend, old, old.location, properties, content.schema)
    try:
        return await located(backend, old.id)
    except (LanceNamespaceError, CancelledError) as e:
        await replacing.put_back(backend, old, e, instead=(old.location, properties))
        raise
