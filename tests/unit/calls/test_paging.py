"""Paging: complete results for all page sizes and limits, and opaque tokens."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError, InvalidInputError

from lance_ns_async.backends.base import Capabilities
from lance_ns_async.calls import paging
from lance_ns_async.model import NamespaceId, Page
from tests.fakes.memory import MemoryBackend, Size, as_asked, fixed

DB = NamespaceId(["db"])
NAMES = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=3), unique=True, max_size=20)
SIZES: st.SearchStrategy[Size] = st.one_of(
    st.just(as_asked),
    st.builds(lambda sizes, last: fixed(*sizes, last), st.lists(st.integers(0, 5)), st.integers(1, 5)),
    st.builds(lambda most: lambda number, hint: min(hint or most, most), st.integers(1, 5)),
)
LIMITS = st.lists(st.none() | st.integers(1, 7), min_size=1)


def listing(names: Sequence[str], size: Size = as_asked) -> paging.SizedFetch[str]:
    """Returns pages of the names, like a catalog."""
    backend = MemoryBackend.able(Capabilities(0, None, paginates=True), size)
    backend.add_other_table(DB.table(name) for name in names)
    backend.plant_namespace(DB)
    return lambda token, hint: backend.list_tables(DB, token, hint)


class Sieve:
    """Selects some of the names, and records the examined ones."""

    def __init__(self, kept: Callable[[str], bool]) -> None:
        self.kept = kept
        self.checked: list[str] = []

    async def __call__(self, names: Sequence[str]) -> Sequence[str]:
        assert names, "nothing to ask about"
        self.checked += names
        return [name for name in names if self.kept(name)]


async def all_pages(fetch: paging.SizedFetch[str], sieve: Sieve, limits: Sequence[int | None]) -> list[str]:
    """Returns all pages in order, with the limits used in turn."""
    result: list[str] = []
    token: str | None = None
    for turn in range(1000):
        limit = limits[turn % len(limits)]
        page = await paging.take(fetch, sieve, limit=limit, page_token=token)
        result += page.items
        if page.token is None:
            assert limit is None or len(page.items) <= limit
            return result
        assert len(page.items) == limit
        token = page.token
    raise AssertionError("the pages do not end")


@given(st.lists(st.tuples(st.text(min_size=1), st.booleans()), unique_by=lambda pair: pair[0]), SIZES, LIMITS)
@example([("a", False), ("b", False), ("c", True), ("d", True), ("e", True), ("f", True)], as_asked, [3, 1])
@example([("f", False), ("e", False), ("d", True), ("c", True), ("b", True), ("a", True)], as_asked, [3, 1])
async def test_pages_make_the_whole(pairs: list[tuple[str, bool]], size: Size, limits: list[int | None]) -> None:
    kept = dict(pairs)
    sieve = Sieve(kept.__getitem__)
    assert (await all_pages(listing(list(kept), size), sieve, limits)) == [name for name in kept if kept[name]]
    assert sieve.checked == list(kept)


@given(NAMES, SIZES)
async def test_the_empty_token_is_the_beginning(names: list[str], size: Size) -> None:
    for token in (None, ""):
        page = await paging.take(listing(names, size), paging.keep_all, limit=None, page_token=token)
        assert (list(page.items), page.token) == (names, None)


async def test_limits_of_pages() -> None:
    sieve = Sieve(lambda name: name != "b")
    page = await paging.take(listing("abcdef"), sieve, limit=3, page_token=None)
    assert list(page.items) == ["a", "c", "d"] and sieve.checked == ["a", "b", "c", "d"]
    page = await paging.take(listing("abc"), paging.keep_all, limit=3, page_token=None)
    assert (list(page.items), page.token) == (["a", "b", "c"], None)


@given(st.lists(st.sampled_from(string.ascii_lowercase), unique=True, min_size=1), st.data())
async def test_what_goes_or_comes_between_two_pages_spoils_nothing_else(names: list[str], data: st.DataObject) -> None:
    present, result = set(names), list[str]()
    stayed = set(present)

    async def fetch(token: str | None, hint: int | None) -> Page[str]:
        return Page(sorted(present))

    token: str | None = None
    while True:
        page = await paging.take(fetch, paging.keep_all, limit=data.draw(st.integers(1, 4)), page_token=token)
        result += page.items
        if (token := page.token) is None:
            break
        gone = data.draw(st.sets(st.sampled_from(sorted(present)), max_size=len(present) - 1))
        present -= gone
        stayed -= gone
        present |= data.draw(st.sets(st.sampled_from(string.ascii_uppercase), max_size=3))
    assert len(result) == len(set(result)) and stayed <= set(result)


@pytest.mark.parametrize("limit", [0, -1, -100])
async def test_a_limit_below_one_is_refused_before_any_call(limit: int) -> None:
    async def fetch(token: str | None, hint: int | None) -> Page[str]:
        raise AssertionError("asked")

    with pytest.raises(InvalidInputError, match=f"limit {limit}: must be at least 1"):
        await paging.take(fetch, paging.keep_all, limit=limit, page_token=None)


@given(st.none() | st.text(), st.none() | st.tuples(st.text(min_size=1), st.integers(1, 2**40)))
def test_a_cursor_survives_its_token(token: str | None, inside: tuple[str, int] | None) -> None:
    cursor = paging.Cursor(token) if inside is None else paging.Cursor(token, *inside)
    assert paging.Cursor.decode(cursor.encode()) == cursor


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_a_token_carries_what_json_can_say(value: object) -> None:
    token = paging.encode_token(value)
    assert paging.decode_token(token) == value
    assert token.isascii() and not set(token) & set("+/&?# ")


FOREIGN = [
    *("x", "not a token", "é", "\ud800", "AAAA", "WyI+Pj4/Il0=", "="),
    *(base64.b64encode(it).decode() for it in (b"\xff\xfe", b"[" * 100_000)),
    *(
        base64.b64encode(json.dumps(value).encode()).decode()
        for value in (
            *(5, "page", [], {}, {"after": ["db", "t"]}, [1], ["t", "a"], ["t", None, 3], ["t", "a", 0]),
            *(["t", "a", "3"], ["t", "a", 3, 4]),
        )
    ),
]


@pytest.mark.parametrize("token", FOREIGN, ids=range(len(FOREIGN)))
async def test_a_foreign_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidInputError, match="not one of this listing") as raised:
        await paging.take(listing("abc"), paging.keep_all, limit=1, page_token=token)
    assert len(str(raised.value)) < 300


@given(st.text(min_size=1))
async def test_any_text_is_a_token_or_refused(token: str) -> None:
    try:
        paging.Cursor.decode(token)
    except InvalidInputError as e:
        assert "page_token" in str(e)


async def test_walking_gives_each_page_with_its_token() -> None:
    pages: dict[str | None, Page[str]] = {None: Page(["a"], "1"), "1": Page([], "2"), "2": Page(["b"])}

    async def fetch(token: str | None) -> Page[str]:
        return pages[token]

    assert [(token, list(page.items)) async for token, page in paging.walk(fetch)] == [
        (None, ["a"]),
        ("1", []),
        ("2", ["b"]),
    ]
    assert [token async for token, _ in paging.walk(fetch, "1")] == ["1", "2"]


async def test_empty_pages_end_at_some_time() -> None:
    requested = 0

    async def fetch(token: str | None) -> Page[str]:
        nonlocal requested
        requested += 1
        return Page([], str(requested))

    with pytest.raises(InternalError, match="listing does not end: 100,000 pages in a row are empty"):
        async for _, page in paging.walk(fetch):
            assert not page.items
    assert requested == 100_001


async def test_a_walk_is_closed_after_the_page_that_was_enough() -> None:
    tokens: list[str | None] = []

    async def fetch(token: str | None, hint: int | None) -> Page[str]:
        tokens.append(token)
        return Page([f"a{len(tokens)}", f"b{len(tokens)}"], f"{len(tokens)}")

    page = await paging.take(fetch, paging.keep_all, limit=4, page_token=None)
    assert list(page.items) == ["a1", "b1", "a2", "b2"] and tokens == [None, "1"]
    assert page.token is not None and paging.Cursor.decode(page.token) == paging.Cursor("2")


async def test_what_is_on_two_pages_is_given_once_and_counts_once() -> None:
    pages = {None: Page(["a", "b"], "1"), "1": Page(["b", "a", "c"], "2"), "2": Page(["c", "d", "e"], None)}

    async def fetch(token: str | None, hint: int | None) -> Page[str]:
        return pages[token]

    assert await paging.take(fetch, paging.keep_all, limit=None, page_token=None) == Page(["a", "b", "c", "d", "e"])
    some = await paging.take(fetch, paging.keep_all, limit=4, page_token=None)
    assert some.items == ["a", "b", "c", "d"]
    assert await paging.take(fetch, paging.keep_all, limit=4, page_token=some.token) == Page(["e"])
