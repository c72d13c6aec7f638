"""Invalid JSON responses: arbitrary ones, and correct ones with errors in them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Path = tuple[Any, ...]
"""The keys and indexes that lead to a value inside another."""

DROPPED = object()
"""Represents a member that is omitted."""


def _nested(depth: int, *, lists: bool) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value] if lists else {"properties": value}
    return value


ODD_TEXTS = [
    "",
    " ",
    "\0",
    "\r\nX-Injected: 1",
    "a" * 5000,
    "é日本\U0001f600",
    "\u202e\u2028",
    "%",
    "%s{0}",
    "..",
    "a/b?c#d%2F",
    "$",
    "lance",
    "LANCE",
    "\x1f",
    "-1",
    "9" * 400,
    "://",
    "http://[",
    "NaN",
]
"""Texts that code could misinterpret as another type."""

ODD_NUMBERS = [0, -1, 2**31, 2**53 + 1, -(2**63), 2**64, 10**400, -0.0, 1e308, 1e-308, 0.1]

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(ODD_NUMBERS),
    st.sampled_from(ODD_TEXTS),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from([[], {}, [None], [[]], [{}], {"": ""}, {"a": None}, ["a", 1], {"a": {"b": []}}]),
    st.builds(_nested, st.sampled_from([20, 200]), lists=st.booleans()),
)
"""Values of a wrong type."""

ANYTHING: st.SearchStrategy[Any] = st.recursive(
    ODD,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
"""Any JSON."""

RAW: st.SearchStrategy[bytes] = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"", b"OK", b"null", b"[" * 20_000, b'{"a":' * 20_000, b"1e999", b"9" * 5000, b"\xef\xbb\xbf{}"]),
    st.sampled_from([b"NaN", b'{"a": 1, "a": 2}', b'"\\ud800"', b"{}{}", b"<html><body>Bad day</body></html>"]),
)
"""Bytes that may not be JSON."""


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the path to each value inside another, and to itself."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inner:
        yield from paths(held, (*path, key))


def changed(value: Any, path: Path, new: Any) -> Any:
    """Returns the value with another value at the end of a path, or without it."""
    if not path:
        return {} if new is DROPPED else new
    *above, last = path
    result = value = copy.deepcopy(value)
    for key in above:
        result = result[key]
    if new is DROPPED:
        del result[last]
    else:
        result[last] = new
    return value


@st.composite
def mutated(draw: st.DrawFn, good: Any) -> Any:
    """Returns a correct response with one to three errors."""
    value = good
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(paths(value))))
        value = changed(value, path, draw(st.one_of(st.just(DROPPED), ODD)))
    return value


def bodies(good: Any) -> st.SearchStrategy[bytes]:
    """Returns bodies of responses instead of the correct one."""
    encoded = json.dumps(good).encode()
    return st.one_of(
        mutated(good).map(_dumped),
        mutated(good).map(_dumped),
        ANYTHING.map(_dumped),
        RAW,
        st.integers(0, len(encoded)).map(lambda end: encoded[:end]),
    )


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()
