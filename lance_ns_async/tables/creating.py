"""Creating tables: declared in the catalog, then written; what fails is undone in both.

Of several that create one table, the catalog lets one declare it. So whoever declared it may undo that, unless
another has written to it meanwhile, and one that is registered is there, even if nothing was written to it yet.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any

import anyio
import pyarrow as pa
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async import storage
from lance_ns_async.backends.base import Backend
from lance_ns_async.locating import located
from lance_ns_async.model import Table, TableId
from lance_ns_async.policy import undoing
from lance_ns_async.tables import first, names
from lance_ns_async.tables.opening import Opener
from lance_ns_async.threads import in_thread

if TYPE_CHECKING:
    from lance import LanceDataset


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


@dataclass(frozen=True, slots=True)
class Made:
    """A table and its dataset; None where nothing was written to it yet."""

    table: Table
    dataset: LanceDataset | None


async def create(backend: Backend, opener: Opener, id: TableId, content: Content) -> Made:
    """Declares a table that must not exist yet, and writes its first version; if that fails neither stays."""
    table = await declared(backend, id, content)
    abandoned = Event()
    try:
        return Made(table, await _written(opener, content.place(table), content.data, abandoned))
    except (LanceNamespaceError, anyio.get_cancelled_exc_class()) as e:
        abandoned.set()
        if not isinstance(e, TableAlreadyExistsError):
            await undo(backend, content.place(table), e, written=True)
        raise


async def declared(backend: Backend, id: TableId, content: Content) -> Table:
    """A table that is registered just now, at a place where nothing is, with what it takes to write there."""
    table = await backend.declare_table(id, None, content.properties or {}, content.schema)
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
    except (LanceNamespaceError, anyio.get_cancelled_exc_class()) as e:
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


async def check_empty(table: Table) -> None:
    """Raises TableAlreadyExistsError where there is data, and what the storage says where it cannot be looked at.

    That may be of a table that was renamed, whose name is free again. Costs an open.
    """
    if not await storage.is_only_declared(table):
        raise TableAlreadyExistsError(
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
    try:
        old = await located(backend, id)
    except TableNotFoundError:
        return await create(backend, opener, id, content)
    table = await registered_anew(backend, old, content)

    def work() -> LanceDataset:
        return opener.overwrite(content.place(table), content.data)

    try:
        return Made(table, await in_thread(table, work, changes=True))
    except (LanceNamespaceError, anyio.get_cancelled_exc_class()) as e:
        if table is not old:
            await put_back(backend, old, e)
        raise


async def _written(opener: Opener, table: Table, data: Any, abandoned: Event) -> LanceDataset:
    def work() -> LanceDataset:
        dataset = first.create(opener, table, data)
        # Nobody waits for it any more, and the table is registered no more.
        if abandoned.is_set() and not storage.neighbours(table):
            storage.delete(table)
        return dataset

    return await in_thread(table, work, changes=True)


async def undo(backend: Backend, table: Table, error: BaseException, *, written: bool) -> None:
    """Removes the declaration, and what was written; where that fails too, the error says what is left."""
    left = f"its registration {'and what was written to' if written else 'at'} {table.location}"
    with undoing():
        try:
            await backend.deregister_table(table.id)
            if written:
                left = f"what was written to {table.location}"
                await storage.check_alone(table)
                await storage.drop(table)
        except LanceNamespaceError as e:
            error.add_note(f"and of table {table.id} is left: {left} ({e})")


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
    await backend.deregister_table(old.id)
    try:
        await backend.declare_table(old.id, old.location, properties, content.schema)
        return await located(backend, old.id)
    except (LanceNamespaceError, anyio.get_cancelled_exc_class()) as e:
        await put_back(backend, old, e)
        raise


async def put_back(backend: Backend, old: Table, error: BaseException) -> None:
    """Registers a table as it was; where that fails too, the error says how it was."""
    with undoing():
        try:
            if (await _registered(backend, old.id)) is not None:
                await backend.deregister_table(old.id)
            await backend.declare_table(old.id, old.location, old.properties or {}, old.schema)
        except LanceNamespaceError as e:
            error.add_note(f"and what was before could not be put back ({e}): table {old.id} was at {old.location}")


async def _registered(backend: Backend, id: TableId) -> Table | None:
    try:
        return await backend.describe_table(id)
    except TableNotFoundError:
        return None
