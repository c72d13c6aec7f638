"""Pages of results that are complete in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.model import Page

T = TypeVar("T")


async def page_of(items: Mapping[str, T], limit: int | None, page_token: str | None) -> tuple[dict[str, T], str | None]:
    """Returns at most `limit` of the items, sorted by name, and the token of the next page."""

    async def fetch(token: str | None, size: int | None) -> Page[str]:
        return Page(sorted(items))

    page = await take(fetch, keep_all, limit=limit, page_token=page_token)
    return {name: items[name] for name in page.items}, page.token
