"""Words and numbers for people: kinds of errors, counts, sizes, durations."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Final, TypeVar

import lance_namespace.errors as err

from lance_ns_async.errors import failure_of

MISSING: Final = "missing"
DENIED: Final = "denied"
FAILED: Final = "failed"
"""The kinds of errors; see `error_kind`."""


C = TypeVar("C", bound=type)


def name_iterators(cls: C) -> C:
    """Makes the representation of each iterator and generator name the method of the class that returned it."""

    def named(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            iterator = method(*args, **kwargs)
            iterator.__qualname__ = method.__qualname__
            return iterator

        return call

    for name, method in list(vars(cls).items()):
        returned = getattr(method, "__annotations__", {}).get("return", "")
        if str(returned).startswith(("Iterator[", "AsyncGenerator[")):
            setattr(cls, name, named(method))
    return cls


_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))


def counted(count: int, things: str) -> str:
    """Returns a number and what it counts: `things` begins with a plural, from which one has no `s`."""
    first, space, rest = things.partition(" ")
    return f"{count:,} {first.removesuffix('s') if count == 1 else first}{space}{rest}"


def size_text(size: int) -> str:
    """Returns a number of bytes for people."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def error_kind(error: err.LanceNamespaceError) -> str:
    """Returns the kind of an error in reports: "missing", "denied" (also for failed sign-ins), or "failed"."""
    match error:
        case err.TableNotFoundError() | err.NamespaceNotFoundError():
            return MISSING
        case err.PermissionDeniedError() | err.UnauthenticatedError():
            return DENIED
        case _:
            return FAILED


def attempts_of(error: err.LanceNamespaceError) -> int:
    """Returns how many times the failed call was sent."""
    failure = failure_of(error)
    return 1 if failure is None else failure.attempts


def printable(text: str) -> str:
    """Returns the text with a replacement character in place of each unprintable character."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def duration(seconds: float) -> str:
    """Returns a duration as text, in seconds or milliseconds."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1e3:.0f} ms"


def time_span(seconds: float) -> str:
    """Returns a long duration as text, such as "2 days, 3 hours"; less than a part of the smaller unit is left out."""
    for (unit, size), (part, part_size) in pairwise(_UNITS):
        if seconds >= size:
            units, parts = counted(int(seconds // size), unit), int(seconds % size // part_size)
            return f"{units}, {counted(parts, part)}" if parts else units
    return counted(int(seconds), "seconds") if seconds >= 1 else duration(seconds)


def quantile(durations: Sequence[float], share: float) -> float | None:
    """Returns a quantile of sorted durations; None if there are none."""
    return durations[min(int(len(durations) * share), len(durations) - 1)] if durations else None


def json_text(row: object, *, indent: int | None = None) -> str:
    """Returns JSON; numbers that it does not have become the texts `NaN`, `Infinity` and `-Infinity`."""
    try:
        return json.dumps(row, ensure_ascii=False, default=str, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(row), ensure_ascii=False, default=str, indent=indent)


def _finite(value: Any) -> Any:
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: _finite(it) for key, it in value.items()}
        case list() | tuple():
            return [_finite(it) for it in value]
    return value
