"""Errors of calls in tests."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import pytest

E = TypeVar("E", bound=BaseException)


async def catch(
    error: type[E] | tuple[type[E], ...], call: Awaitable[object], match: str | None = None
) -> pytest.ExceptionInfo[E]:
    """Awaits a call that must fail with this error, and with a message that matches the pattern."""
    with pytest.raises(error, match=match) as caught:
        await call
    return caught
