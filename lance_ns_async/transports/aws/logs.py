"""What botocore's loggers may say of our calls: nothing that holds a header or a body."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

T = TypeVar("T")

_TALKATIVE = (
    "aiobotocore.endpoint",
    "aiobotocore.parsers",
    "botocore.auth",
    "botocore.endpoint",
    "botocore.parsers",
    "botocore.utils",
)
"""Loggers that quote requests, in which the session token is, and answers, in which STS gives new keys out."""

_ours: ContextVar[bool] = ContextVar("lance_ns_async_aws_call", default=False)


async def unlogged(call: Awaitable[T]) -> T:
    """Returns what a call of botocore's gives; whatever level is set, its requests and answers are not logged.

    Other users of botocore in the process log as before.
    """
    _silence()
    token = _ours.set(True)
    try:
        return await call
    finally:
        _ours.reset(token)


@cache
def _silence() -> None:
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_is_not_ours)


def _is_not_ours(record: logging.LogRecord) -> bool:
    return not _ours.get()
