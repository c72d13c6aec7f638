"""Listings in pages: following a catalog's tokens to the end, and tokens of our own that resume inside a page."""

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

_LONGEST_TOKEN = 200
"""How many characters of a page token are shown."""

Fetch = Callable[[str | None], Awaitable[Page[T]]]
"""Gives the page of a token; None asks for the first."""

SizedFetch = Callable[[str | None, int | None], Awaitable[Page[T]]]
"""The same, with a hint of how many items are wanted."""

Keep = Callable[[Sequence[str]], Awaitable[Sequence[str]]]
"""Gives those of the names that belong in the listing, in their order."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a listing goes on: a page of the catalog's, and the name in it after which."""

    token: str | None = None
    after: str | None = None
    size: int | None = None
    """The hint the page was asked with: with another, it could end before that name."""

    @classmethod
    def decode(cls, page_token: str | None) -> Cursor:
        """The cursor in an opaque page token; None and the empty token are the beginning."""
        match decode_token(page_token):
            case None:
                return cls()
            case [str() | None as token]:
                return cls(token)
            case [str() | None as token, str() as after, int() as size] if size > 0:
                return cls(token, after, size)
        raise foreign_token(page_token)

    def encode(self) -> str:
        """The cursor as a page token."""
        return encode_token([self.token] if self.after is None else [self.token, self.after, self.size])

    def rest(self, names: Sequence[str]) -> Sequence[str]:
        """The names that were not given yet.

        If the last one given is gone by now, the order of names tells what comes after it.
        """
        if self.after is None:
            return names
        if self.after in names:
            return names[names.index(self.after) + 1 :]
        return [name for name in names if name > self.after]


def encode_token(value: Any) -> str:
    """Anything JSON can say as an opaque page token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def decode_token(page_token: str | None) -> Any:
    """What a token of ours says; None for no token and for the empty one."""
    if not page_token:
        return None
    try:
        return json.loads(base64.b64decode(page_token.encode(), altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as e:
        raise foreign_token(page_token) from e


def endless(token: str, at: Id | None = None) -> InternalError:
    """The error for a catalog's listing, of what is in `at`, in which a page token came twice."""
    listing = "listing" if at is None else f"listing of {spelled(at)}"
    told = f"page token {shortened(token, _LONGEST_TOKEN)!r} came twice"
    return InternalError(f"{PHRASES[InternalError]}: the catalog's {listing} does not end: {told}")


async def walk(fetch: Fetch[T], token: str | None = None) -> AsyncGenerator[tuple[str | None, Page[T]]]:
    """Each page from `token` on, with the token it was asked with; a token that repeats is an InternalError."""
    seen = {token}
    while True:
        page = await fetch(token)
        yield token, page
        token = page.token
        if token is None:
            return
        if token in seen:
            raise endless(token)
        seen.add(token)


async def take(fetch: SizedFetch[str], keep: Keep, *, limit: int | None, page_token: str | None) -> Page[str]:
    """At most `limit` names from where `page_token` says, and the token to go on with; None takes all.

    Names are handed to `keep` no further than the limit needs, and each is given once.
    """
    check_limit(limit)
    cursor = Cursor.decode(page_token)
    # Pages may overlap where something is made or removed while they are read.
    found: dict[str, None] = {}

    def size(token: str | None) -> int | None:
        return cursor.size if token == cursor.token and cursor.after is not None else limit

    async with aclosing(walk(lambda token: fetch(token, size(token)), cursor.token)) as pages:
        async for token, page in pages:
            names = cursor.rest(page.items) if token == cursor.token else page.items
            while names:
                wanted = len(names) if limit is None else limit - len(found)
                tried, names = names[:wanted], names[wanted:]
                found.update(dict.fromkeys(await keep([name for name in tried if name not in found])))
                if len(found) == limit:
                    following = Cursor(token, tried[-1], size(token)) if names else Cursor(page.token)
                    return Page(list(found), following.encode() if following != Cursor() else None)
    return Page(list(found))


def check_limit(limit: int | None) -> None:
    """Raises InvalidInputError for a limit that no page could have."""
    if limit is not None and limit < 1:
        raise InvalidInputError(f"limit {limit}: a page holds at least 1 name; leave it out to get all")


async def keep_all(names: Sequence[str]) -> Sequence[str]:
    """Keeps every name."""
    return names


def foreign_token(page_token: str | None) -> InvalidInputError:
    """The error for a page token that the listing it was given to has not made."""
    return InvalidInputError(
        f"page_token {(page_token or '')[:40]!r}: not one of this listing; pass on what the page before it gave"
    )
