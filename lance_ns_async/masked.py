"""Secrets: the names of those among properties, and values that a `repr` does not show.

Error collectors record local variables by their `repr`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TypeVar

T = TypeVar("T")

MAY_BE_SECRET = re.compile(
    "secret|token|passw|passphrase|pwd|credential|key|sas|authorization|signature", re.IGNORECASE
)
"""Names of properties whose values must not appear in errors, because they may be secrets."""

IS_SECRET = re.compile(
    r"^header[._-]|(^|[._-])(credential|password|proxy|(auth[._-]?)?token|secret)$"
    r"|secret(?![._-]file$)|session[._-]?token|sas[._-]?token|account[._-]?key|private[._-]?key|external[._-]?id"
    r"|service[._-]?account[._-]?key|oauth:token-type:",
    re.IGNORECASE,
)
"""Names of properties whose values are secrets; file paths, such as `client_key`, are not included."""


class MaskedText(str):
    """A text whose `repr` does not show it; its copies and parts are ordinary texts."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class MaskedBytes(bytes):
    """Bytes whose `repr` does not show them; their copies and parts are ordinary bytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


def bearer_token(text: str) -> MaskedText:
    """Returns a bearer token without the name of its scheme, which some programs write before it; it may be empty."""
    return MaskedText(re.sub("^bearer( +|$)", "", text, flags=re.IGNORECASE))


def without_frames(error: BaseException) -> BaseException:
    """Returns the error without the frames of its traceback, and of its causes, whose variables may hold secrets."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


class MaskedPartial(partial[T]):
    """A `functools.partial` whose `repr` does not show its arguments."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<partial {getattr(self.func, '__qualname__', type(self.func).__name__)}>"


def without_user(text: str) -> str:
    """Returns the text with user, password and query of each URL hidden."""
    text = re.sub(r"(?<=://)[^/@\s]+@", "***@", text)
    return re.sub(r"(?<=\w)(://[^\s?#]*)\?[^\s#]+", r"\1?***", text)


def mask(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns properties for use in errors: values that are, or may contain, credentials are hidden."""
    return {key: "***" if MAY_BE_SECRET.search(key) else without_user(value) for key, value in properties.items()}
