"""Selection of the fields that a request sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
