"""What decoders take out of answers, and refuse where it is of another type than it must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text(value: Any) -> str:
    """The value, which must be a text."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a text is wanted")
    return value


def texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    """The values of an object that may be absent, which must all be texts."""
    return {key: text(value) for key, value in (values or {}).items()}


def nothing(answer: Any) -> None:
    """An answer that says no more than that the call succeeded."""
