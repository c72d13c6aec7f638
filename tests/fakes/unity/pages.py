"""The pages of a Unity Catalog server's listings, and the variants of other services."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..faults import Answer
from .catalog import Shelf, compact
from .checks import page_size

T = TypeVar("T")
_AGAIN = "again"


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of listings. The token of a page is its last name, and a full page has one even if it is the last."""

    short: bool = False
    """Whether pages have fewer entries than requested, in varying numbers."""
    empty: bool = False
    """Whether an empty page with a token comes before each other page."""
    repeat: bool = False
    """Whether each page is the first one, with the same token."""

    def answer(
        self, shelf: Shelf[T], params: Mapping[str, str], sees: Callable[[str], bool], text: Callable[[T], bytes]
    ) -> Answer:
        """Returns the requested page; entries that the user may not see are removed afterwards."""
        size, token = page_size(params), params.get("page_token") or None
        if self.repeat:
            token = None
        if self.empty and not (token or "").startswith("~"):
            return _answer(shelf.kind, [], f"~{token or ''}")
        after = token.removeprefix("~") or None if token else None
        if self.short:
            size = 1 + zlib.crc32((after or "").encode()) % size
        page = shelf.after(after, size)
        more = page[-1][0] if page and len(page) == size else None
        shown = [text(entry) for name, entry in page if sees(name)]
        return _answer(shelf.kind, shown, _AGAIN if self.repeat else more)


def _answer(kind: str, shown: list[bytes], token: str | None) -> Answer:
    body = b'{"%b":[%b],"next_page_token":%b}' % (f"{kind.lower()}s".encode(), b",".join(shown), compact(token))
    return Answer(200, body, {"Content-Type": "application/json"})
