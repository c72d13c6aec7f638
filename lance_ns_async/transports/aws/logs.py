"""Suppression of botocore's log records that contain headers or bodies of this package's calls."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
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
"""Loggers that quote requests, which contain the session token, and responses, in which STS returns new keys."""

_ours: ContextVar[bool] = ContextVar("lance_ns_async_aws_call", default=False)


async def call_unlogged(call: Awaitable[T]) -> T:
    """Returns the result of a call of botocore whose requests and responses are not logged, whatever the log level.

    Other users of botocore in the process log as before.
    """
    with suppress_logs():
        return await call


@contextmanager
def suppress_logs() -> Iterator[None]:
    """Suppresses the log records of botocore's work in this context that quote requests or responses."""
    _silence()
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


@cache
def _silence() -> None:
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_is_not_ours)


def _is_not_ours(record: logging.LogRecord) -> bool:
    return not _ours.get()
