"""Paginated listings: following a catalog's page tokens, and own page tokens that resume inside a page."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from lance_namespace.errors import InternalError, InvalidInputError

from lance_ns_async.errors import PHRASES, shortened, spelled
from lance_ns_async.model import Id, Page

T = TypeVar("T")

_MAX_TOKEN_LENGTH = 200  # Maximum number of characters of a page token in a message.
_MAX_TOKEN = 64 << 10
"""Maximum number of characters of a page token; one that a client has made could take long to read."""
_MAX_REPEATED_PAGES = 100  # Maximum number of pages in a row that came before; real catalogs repeat none.
_MAX_EMPTY_PAGES = 100_000
"""Maximum number of pages in a row without items; real catalogs have some where a user may see only a few objects."""

Fetch = Callable[[str | None], Awaitable[Page[T]]]
"""Fetches the page of a token; None fetches the first page."""

SizedFetch = Callable[[str | None, int | None], Awaitable[Page[T]]]
"""Fetches a page like `Fetch`, with a hint of how many items to return."""

Keep = Callable[[Sequence[str]], Awaitable[Sequence[str]]]
"""Returns the names that belong in the listing, in the same order."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position in a listing: a page of the catalog, and the last name returned from it."""

    token: str | None = None
    after: str | None = None
    size: int | None = None
    """The size hint of the request for that page; with another hint, the page could end before the name."""

    @classmethod
    def decode(cls, page_token: str | None) -> Cursor:
        """Returns the cursor in an opaque page token; None and the empty token mean the beginning."""
        match decode_token(page_token):
            case None:
                return cls()
            case [str() | None as token]:
                return cls(token)
            case [str() | None as token, str() as after, int() as size] if size > 0:
                return cls(token, after, size)
        raise foreign_token(page_token)

    def encode(self) -> str:
        """Returns the cursor as an opaque page token."""
        return encode_token([self.token] if self.after is None else [self.token, self.after, self.size])

    def rest(self, names: Sequence[str]) -> Sequence[str]:
        """Returns the names that were not returned yet.

        If the last returned name no longer exists, these are the names that sort after it.
        """
        if self.after is None:
            return names
        if self.after in names:
            return names[names.index(self.after) + 1 :]
        return [name for name in names if name > self.after]


def encode_token(value: Any) -> str:
    """Returns a JSON value as an opaque page token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def decode_url_text(text: str) -> bytes:
    """Returns the bytes of a text in Base64 with the alphabet for URLs; a ValueError is raised for any other text."""
    # Python accepts the plain alphabet, too, and warns about it from 3.15 on.
    if "+" in text or "/" in text:
        raise ValueError("not of the alphabet for URLs")
    return base64.b64decode(text, altchars=b"-_", validate=True)


def decode_token(page_token: str | None) -> Any:
    """Returns the value in a page token; None for no token and for the empty token."""
    if not page_token:
        return None
    if len(page_token) > _MAX_TOKEN:
        raise foreign_token(page_token)
    try:
        return json.loads(decode_url_text(page_token))
    except (ValueError, RecursionError) as e:
        raise foreign_token(page_token) from e


class Progress:
    """The pages of one listing so far, to notice that it has no end."""

    def __init__(self, at: Id | None = None) -> None:
        """Creates the state of a listing; `at` is the listed object, None if unknown."""
        self._at = at
        self._tokens = set[str]()
        self._pages = set[int]()
        self._empty = self._repeated = 0

    def record(self, page: Page[Any]) -> None:
        """Records a page."""
        if page.token is None:
            return
        if page.token in self._tokens:
            raise self._endless(f"page token {shortened(page.token, _MAX_TOKEN_LENGTH)!r} came twice")
        self._tokens.add(page.token)
        if not page.items:
            self._empty += 1
        else:
            content = hash((len(page.items), repr(page.items[0]), repr(page.items[-1])))
            self._empty = 0
            self._repeated = self._repeated + 1 if content in self._pages else 0
            self._pages.add(content)
        if self._empty > _MAX_EMPTY_PAGES:
            raise self._endless(f"{_MAX_EMPTY_PAGES:,} pages in a row are empty")
        if self._repeated > _MAX_REPEATED_PAGES:
            raise self._endless(f"{_MAX_REPEATED_PAGES} pages in a row came before, with other page tokens")

    def _endless(self, reason: str) -> InternalError:
        listing = "listing" if self._at is None else f"listing of {spelled(self._at)}"
        return InternalError(f"{PHRASES[InternalError]}: the catalog's {listing} does not end: {reason}")


async def walk(fetch: Fetch[T], token: str | None = None) -> AsyncGenerator[tuple[str | None, Page[T]]]:
    """Yields each page from `token` on, with the token that requested it."""
    progress = Progress()
    if token is not None:
        progress.record(Page([], token))  # So that a page which leads back to the start is noticed at once.
    while True:
        page = await fetch(token)
        yield token, page
        progress.record(page)
        token = page.token
        if token is None:
            return


async def take(fetch: SizedFetch[str], keep: Keep, *, limit: int | None, page_token: str | None) -> Page[str]:
    """Returns at most `limit` names, each once, and the token of the next page.

    `keep` gets only as many names as the limit requires.

    Args:
        fetch: Fetches a page of the catalog.
        keep: Selects the names that belong in the listing.
        limit: Maximum number of names; None for all.
        page_token: Where to start; None for the beginning.
    """
    check_limit(limit)
    cursor = Cursor.decode(page_token)
    # Pages may overlap if objects are created or removed during the listing.
    names_out: dict[str, None] = {}

    def size(token: str | None) -> int | None:
        return cursor.size if token == cursor.token and cursor.after is not None else limit

    async with aclosing(walk(lambda token: fetch(token, size(token)), cursor.token)) as pages:
        async for token, page in pages:
            names = cursor.rest(page.items) if token == cursor.token else page.items
            while names:
                missing = len(names) if limit is None else limit - len(names_out)
                batch, names = names[:missing], names[missing:]
                names_out.update(dict.fromkeys(await keep([name for name in batch if name not in names_out])))
                if len(names_out) == limit:
                    following = Cursor(token, batch[-1], size(token)) if names else Cursor(page.token)
                    return Page(list(names_out), following.encode() if following != Cursor() else None)
    return Page(list(names_out))


def check_limit(limit: int | None) -> None:
    """Raises InvalidInputError for a limit below 1."""
    if limit is not None and limit < 1:
        raise InvalidInputError(f"limit {limit}: must be at least 1; omit it to get all names")


async def keep_all(names: Sequence[str]) -> Sequence[str]:
    """Returns all names."""
    return names


def foreign_token(page_token: str | None) -> InvalidInputError:
    """Returns the error for a page token that does not belong to the listing."""
    return InvalidInputError(
        f"page_token {(page_token or '')[:40]!r}: not one of this listing; pass the page_token of the previous page"
    )
