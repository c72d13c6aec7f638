"""The state of `maintain_forever`: in memory, or in a Lance table with a lease, for several instances.

A setting of that table names the instance that works, by its host and process. To take or to renew the lease, an
instance commits a new value of the setting; if two commits have read the same version, Lance accepts one. No clocks are
compared: others may take the lease as soon as they have seen the same value for its whole time, and the holder counts
from before its commit.

Any state that was ever stored is a correct one: it has the tables to look at as of a watch's token, so that an older
state only lets more tables be examined. Therefore an instance that has lost its lease can do no harm.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from socket import gethostname
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.model import Table, TableId
from lance_ns_async.storage.datasets import options as lance_options
from lance_ns_async.storage.folders import Folder, Folders
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.threads import in_thread

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")

LEASE = 30.0
"""Default duration of a lease, in seconds."""

_USED = 0.8  # The share of the lease after which its holder stops.
_KEY = "lance_ns_async.lease"
_PARTS = {"_transactions", "_versions", "data"}
_SCHEMA = pa.schema(
    {"token": pa.large_string(), "pending": pa.list_(pa.list_(pa.string())), "all_at": pa.float64()},
    {"lance_ns_async": "state of maintain_forever 1"},
)


@dataclass(frozen=True, slots=True)
class MaintenanceState:
    """What remains to be done."""

    token: str = ""
    """The token of a watch; empty before its first look."""
    pending: tuple[TableId, ...] = ()
    """The tables to look at as of the token."""
    all_at: float = 0.0
    """When all tables were pending for the last time, in seconds since 1970."""


class StatePlace(Protocol):
    """Where a state is kept, and who may change it."""

    lease: float
    """Seconds after which another instance can take over from one that was killed."""

    @property
    def is_held(self) -> bool:
        """Whether this instance has the lease."""

    @property
    def other_holder(self) -> str:
        """The host, the process and the id of another instance that has the lease; empty if none has."""

    async def take(self) -> bool:
        """Takes or renews the lease; returns whether this instance has it now."""

    async def release(self) -> None:
        """Gives the lease back."""

    async def read(self) -> MaintenanceState:
        """Returns the last state; an empty one if there is none."""

    async def write(self, state: MaintenanceState) -> None:
        """Stores a state."""


class OwnState:
    """A state in memory, for the only instance."""

    lease = inf
    is_held = True
    other_holder = ""

    def __init__(self) -> None:
        self._state = MaintenanceState()

    async def take(self) -> bool:
        """Returns True."""
        return True

    async def release(self) -> None:
        """Does nothing."""

    async def read(self) -> MaintenanceState:
        """Returns the last state."""
        return self._state

    async def write(self, state: MaintenanceState) -> None:
        """Keeps a state."""
        self._state = state


class SharedState:
    """A state in a Lance table, for all instances with the same location.

    Args:
        opener: Opens the table.
        location: Folder of the table; it is created if it does not exist.
        storage_options: Options for its storage.
        lease: Duration of a lease in seconds.
        now: The clock.

    Raises:
        InvalidInputError: The location is invalid.
    """

    def __init__(
        self,
        opener: Opener,
        location: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        lease: float = LEASE,
        now: Callable[[], float] = monotonic,
    ) -> None:
        try:
            self._folders = Folders(location, storage_options)
        except err.InvalidInputError as e:
            raise err.InvalidInputError(f"state: {e}") from e
        place = self._folders.root
        self._table = Table(TableId([place]), place, storage_options=storage_options)
        self._opener = opener
        self.lease: float = lease
        self._now = now
        self._holder = f"{gethostname()} {os.getpid()} {uuid4().hex}"
        self._count = 0
        self._held_until = -inf
        self._seen: tuple[str, float] = ("", -inf)
        """The last value of another holder, and when it was seen first."""

    @property
    def is_held(self) -> bool:
        """Whether this instance has the lease."""
        return self._now() < self._held_until

    @property
    def other_holder(self) -> str:
        """The host, the process and the id of another instance that has the lease; empty if none has."""
        return "" if self.is_held else self._seen[0].rpartition(" ")[0]

    async def take(self) -> bool:
        """Takes or renews the lease; returns whether this instance has it now. Cost: an open and a commit.

        Raises:
            LanceNamespaceError: The storage failed; the lease that this instance may have is valid until its end.
        """
        began = self._now()
        try:
            dataset = await self._run(self._open)
        except err.TableNotFoundError:
            dataset = await self._create()
        value = _lease_of(dataset)
        if value and not value.startswith(self._holder):
            self._held_until = -inf
            if value != self._seen[0]:
                self._seen = (value, self._now())
            if self._now() - self._seen[1] < self.lease:
                return False
        self._count += 1
        own = f"{self._holder} {self._count}"
        try:
            await self._run(lambda: dataset.update_config({_KEY: own}))
        except err.ConcurrentModificationError:
            self._held_until = -inf
            return False
        self._held_until = began + _USED * self.lease
        return True

    async def release(self) -> None:
        """Gives the lease back, if this instance has it. Cost: an open and a commit."""

        def work() -> None:
            dataset = self._open()
            if _lease_of(dataset).startswith(self._holder):
                dataset.update_config({_KEY: ""})

        if self.is_held:
            self._held_until = -inf
            await self._run(work)

    async def read(self) -> MaintenanceState:
        """Returns the last state; an empty one if there is none. Cost: an open and a scan."""
        rows = await self._run(lambda: self._open().to_table().to_pylist())
        if not rows:
            return MaintenanceState()
        (row,) = rows
        return MaintenanceState(row["token"], tuple(map(TableId, row["pending"])), row["all_at"])

    async def write(self, state: MaintenanceState) -> None:
        """Stores a state, if this instance has the lease. Cost: an open and a commit."""
        row = {"token": state.token, "pending": [[*id] for id in state.pending], "all_at": state.all_at}

        def work() -> None:
            import lance

            self._open()
            data = pa.Table.from_pylist([row], _SCHEMA)
            lance.write_dataset(
                data, self._table.location, mode="overwrite", storage_options=lance_options(self._table)
            )

        if self.is_held:
            await self._run(work)

    async def _create(self) -> LanceDataset:
        """Creates the table in a folder without other files."""

        def create() -> None:
            import lance
            from lance.dataset import AutoCleanupConfig

            lance.write_dataset(
                _SCHEMA.empty_table(),
                self._table.location,
                storage_options=lance_options(self._table),
                auto_cleanup_options=AutoCleanupConfig(interval=100, older_than_seconds=3_600),
            )

        folder = await self._folders.list("") or Folder()
        # Another instance may be creating it now.
        if others := {*folder.files, *folder.folders}.difference(_PARTS):
            raise err.InvalidInputError(
                f"state {self._table.location}: the folder has other files, such as {min(others)}; use a new folder"
            )
        with suppress(err.TableAlreadyExistsError, err.ConcurrentModificationError):
            await self._run(create)
        return await self._run(self._open)

    def _open(self) -> LanceDataset:
        dataset = self._opener.open(self._table)
        if dataset.schema.metadata != _SCHEMA.metadata:
            raise err.InvalidInputError(f"state {self._table.location}: there is another table; use a new folder")
        return dataset

    async def _run(self, work: Callable[[], T]) -> T:
        # The threads for data may all be busy for longer than a lease.
        return await in_thread(self._table, work, changes=True, kind="versions")


def _lease_of(dataset: LanceDataset) -> str:
    return dataset.config().get(_KEY, "")
