"""The time that is left for an operation, in a context variable: it applies to nested calls without a parameter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

_deadline: ContextVar[float | None] = ContextVar("lance_ns_async_deadline", default=None)


@contextmanager
def deadline(seconds: float | None, *, extend: bool = False) -> Iterator[None]:
    """Limits all calls inside the context to `seconds` in total.

    Args:
        seconds: The limit; None leaves the current limit unchanged.
        extend: Whether the limit replaces an earlier one; if not, the earlier one still applies.
    """
    if seconds is None:
        yield
        return
    current = _deadline.get()
    until = monotonic() + seconds
    token = _deadline.set(until if current is None or extend else min(current, until))
    try:
        yield
    finally:
        _deadline.reset(token)


def remaining() -> float | None:
    """Returns the seconds left for the current operation; None outside of any operation."""
    until = _deadline.get()
    return None if until is None else until - monotonic()


def current_deadline() -> float | None:
    """Returns the time of the monotonic clock at which the current operation ends; None outside of any operation."""
    return _deadline.get()
