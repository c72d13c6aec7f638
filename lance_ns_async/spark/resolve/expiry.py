"""When storage options expire, and a word before those do that a job was given and cannot renew."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from time import time
from typing import TYPE_CHECKING

from lance_ns_async.model import EXPIRY

if TYPE_CHECKING:
    from lance_ns_async.spark.resolve.locations import Location

SOON = 600.0
"""Storage options that expire within so many seconds are warned of."""


def expiry(storage_options: Mapping[str, str] | None) -> float | None:
    """When storage options expire, in seconds since 1970; None where they do not say."""
    millis = (storage_options or {}).get(EXPIRY, "")
    return int(millis) / 1000 if millis.isdecimal() else None


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
