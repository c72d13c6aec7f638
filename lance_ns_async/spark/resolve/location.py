"""Where one table is and how to read it, and when its storage options expire."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import time
from typing import TYPE_CHECKING, Any

from lance_ns_async.model import EXPIRY, Table, TableId
from lance_ns_async.storage.datasets import Details

if TYPE_CHECKING:
    import pyarrow as pa

SOON = 600.0
"""Storage options that expire within so many seconds are warned of."""


def expiry(storage_options: Mapping[str, str] | None) -> float | None:
    """When storage options expire, in seconds since 1970; None where they do not say."""
    millis = (storage_options or {}).get(EXPIRY, "")
    return int(millis) / 1000 if millis.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Location:
    """Where one table is and how to read it. Pickled and copied without its storage options."""

    id: TableId
    location: str
    """A URI or a path, as `lance.dataset` takes it."""
    version: int | None = None
    """The version to read; None for whatever is the latest then."""
    rows: int | None = None
    """Rows in that version; None where the dataset was not opened."""
    fragments: int | None = None
    """Fragments of that version; None where the dataset was not opened."""
    storage_options: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    """What Lance needs to reach the storage, secrets included; None where there are none or they were left out."""
    expires_at: float | None = None
    """When the storage options expire, in seconds since 1970; None where they do not."""
    schema: pa.Schema | None = field(default=None, repr=False, hash=False)
    """The columns in that version, an object shared by equal ones; None where the dataset was not opened."""

    @classmethod
    def of(cls, table: Table, details: Details | None) -> Location:
        """The location of a table as its catalog describes it, and as its dataset was found."""
        options = table.storage_options
        if details is None:
            return cls(table.id, table.location, table.version, storage_options=options, expires_at=expiry(options))
        return cls(
            table.id,
            table.location,
            details.version,
            details.rows,
            details.fragments,
            options,
            expiry(options),
            details.schema,
        )

    def renewed(self, table: Table) -> Location:
        """The same version of the same table, reached as its catalog says now."""
        options = table.storage_options
        return replace(self, location=table.location, storage_options=options, expires_at=expiry(options))

    def table(self) -> Table:
        """What is needed to open the dataset."""
        return Table(self.id, self.location, storage_options=self.storage_options, version=self.version)

    def __reduce__(self) -> tuple[Any, ...]:
        bare = (self.id, self.location, self.version, self.rows, self.fragments, None, self.expires_at, self.schema)
        return Location, bare


def warn_of_expiry(locations: Iterable[Location], *, stacklevel: int) -> None:
    """Warns once where storage options end soon, or have; a `stacklevel` of 1 blames who calls this."""
    expiring = (at.expires_at for at in locations if at.storage_options is not None and at.expires_at is not None)
    moments = [moment for moment in expiring if moment < time() + SOON]
    if not moments:
        return
    seconds = min(moments) - time()
    when = f"expire in {seconds:.0f} s" if seconds > 0 else "have expired"
    warnings.warn(
        f"the storage options of {len(moments)} tables {when}, and what Spark reads or writes keeps those it was "
        "given: refresh the locations, and begin anew for each long job",
        stacklevel=stacklevel + 1,
    )
