"""What a request says, apart from what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
