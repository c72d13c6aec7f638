"""Secrets that are used as they are, and that a `repr` does not show: error collectors record local variables."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

T = TypeVar("T")


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
