"""Pages and patterns of Glue's listings, as pure functions."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

import orjson

T = TypeVar("T")

LONGEST_EXPRESSION = 2048


class BadRequest(ValueError):
    """An invalid listing request; the message is the reason."""


def page(
    items: Sequence[T], subject: str, *, token: str | None, size: int | None, most: int, short: bool = False
) -> tuple[Sequence[T], str | None]:
    """Returns one page with at most `most` items, and the token of the next one.

    A token is valid only for the listing of the same `subject`.
    """
    if size is not None and not 1 <= size <= most:
        raise BadRequest(f"maxResults failed to satisfy constraint: a value between 1 and {most}")
    offset, turn = _read(token, subject) if token is not None else (0, 0)
    count = size or most
    if short:
        count = 0 if turn % 2 == 0 else max(1, count // 2)
    end = min(offset + count, len(items))
    # Short pages end with an empty one, so the end is recognized by the missing token only.
    more = end < len(items) or (short and count > 0)
    return items[offset:end], _write(subject, end, turn + 1) if more else None


def matching(names: Sequence[str], expression: str) -> Sequence[str]:
    """Returns the names that the regular expression matches as a whole."""
    if len(expression) > LONGEST_EXPRESSION:
        raise BadRequest(f"expression failed to satisfy constraint: at most {LONGEST_EXPRESSION} characters")
    try:
        pattern = re.compile(expression)
    except re.error as e:
        raise BadRequest(f"expression is not a regular expression: {e}") from e
    return [name for name in names if pattern.fullmatch(name)]


def shell_matching(names: Sequence[str], expression: str) -> Sequence[str]:
    """Returns the names that match a shell pattern."""
    return [name for name in names if fnmatchcase(name, expression)]


def _write(subject: str, offset: int, turn: int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([subject, offset, turn])).decode()


def _read(token: str, subject: str) -> tuple[int, int]:
    try:
        written, offset, turn = orjson.loads(base64.urlsafe_b64decode(token))
    except (binascii.Error, ValueError, TypeError) as e:
        raise BadRequest("the token is invalid") from e
    if written != subject:
        raise BadRequest("the token is of another listing")
    return offset, turn
