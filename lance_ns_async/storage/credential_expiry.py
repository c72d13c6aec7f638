"""When the credentials in a table's storage options expire, and how early they are renewed."""

from __future__ import annotations

from collections.abc import Mapping
from time import time

EXPIRY = "expires_at_millis"
"""The storage option with the expiry of the credentials among them, in milliseconds since 1970."""

RENEWAL_LEAD = 60.0
"""Default number of seconds before their expiry at which credentials are renewed; it is Lance's default, too."""

_RENEWAL_LEAD_MILLIS = "refresh_offset_millis"
"""The storage option with the milliseconds before the expiry at which Lance requests new credentials."""


def expiry(storage_options: Mapping[str, str] | None) -> float | None:
    """Returns the expiry of storage options, in seconds since 1970; None if they contain none."""
    millis = (storage_options or {}).get(EXPIRY, "")
    return int(millis) / 1000 if millis.isdecimal() else None


def expires_soon(storage_options: Mapping[str, str] | None) -> bool:
    """Returns whether Lance would request new credentials at once, because these expire soon or have expired."""
    expires_at = expiry(storage_options)
    lead = (storage_options or {}).get(_RENEWAL_LEAD_MILLIS, "")
    return expires_at is not None and expires_at <= time() + (int(lead) / 1000 if lead.isdecimal() else RENEWAL_LEAD)
