"""Errors of calls in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest
from lance_namespace.errors import LanceNamespaceError

E = TypeVar("E", bound=BaseException)


async def catch(
    error: type[E] | tuple[type[E], ...], call: Awaitable[object], match: str | None = None
) -> pytest.ExceptionInfo[E]:
    """Awaits a call that must fail with this error, and with a message that matches the pattern."""
    with pytest.raises(error, match=match) as caught:
        await call
    return caught


async def outcomes_of(*calls: Awaitable[object]) -> list[type[LanceNamespaceError] | None]:
    """Makes calls concurrently; returns the class of the error of each, and None for one that succeeded."""

    async def outcome(call: Awaitable[object]) -> type[LanceNamespaceError] | None:
        try:
            await call
        except LanceNamespaceError as e:
            return type(e)
        return None

    return await asyncio.gather(*map(outcome, calls))
