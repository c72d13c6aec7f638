"""The names that a Polaris server accepts for new levels and tables."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from .errors import refused

Strictness = Literal["1.5", "1.6"]
"""The first version with these checks."""

_OUT_OF_URIS = re.compile(r'[\x00-\x20\x7f-\xa0"<>\[\\\]^`{|}]|%(?![0-9a-fA-F]{2})')
_BLANKS = ("Zs", "Zl", "Zp")
_OUT_OF_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|#+`]')


def check_name(name: str, strictness: Strictness | None) -> None:
    """Raises an error for a name that newer servers refuse at creation; the server of 1.4.1 accepts all."""
    if strictness is None:
        return
    strange = "/" in name or name != name.strip() or not name
    if strictness == "1.6":
        strange = strange or name in (".", "..") or _OUT_OF_NAMES.search(name) is not None
    if strange:
        raise refused(f"Invalid identifier name: '{name}'")


def check_uri(location: str, start: int = 0) -> None:
    """Raises an error if a location is not a URI, as far as it is parsed from `start` on."""
    blanks = (i for i, c in enumerate(location) if i >= start and unicodedata.category(c) in _BLANKS)
    blank = next(blanks, len(location))
    bad = _OUT_OF_URIS.search(location, start, blank)
    if bad or blank < len(location):
        kind = "Malformed escape pair" if bad and bad[0] == "%" else "Illegal character in path"
        raise refused(f"{kind} at index {bad.start() if bad else blank}: {location}")
