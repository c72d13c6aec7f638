"""The time that is left for an operation, in a context variable: it applies to nested calls without a parameter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

operation_end: ContextVar[float | None] = ContextVar("operation_end", default=None)
"""The time of the monotonic clock at which the current operation ends; None outside of any operation."""


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
    current = operation_end.get()
    until = monotonic() + seconds
    token = operation_end.set(until if current is None or extend else min(current, until))
    try:
        yield
    finally:
        operation_end.reset(token)


def remaining() -> float | None:
    """Returns the seconds left for the current operation; None outside of any operation."""
    until = operation_end.get()
    return None if until is None else until - monotonic()
