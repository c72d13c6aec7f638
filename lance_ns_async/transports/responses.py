"""Processing of responses on all wires: decoding, and the pause that the server requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from lance_ns_async.errors import AnotherAnswerError, Failure
from lance_ns_async.masked import without_frames

T = TypeVar("T")

_OUTLINE_LENGTH = 200
"""Maximum number of characters for the names of an unknown response's fields, in an error message."""

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
"""Exceptions of a decoder for a response of unknown form."""


def decode_body(decode: Callable[[Any], T], body: Any, *, method: str = "", advice: str = "") -> T:
    """Returns the result of a decoder.

    Args:
        decode: Converts the body.
        method: The name of the remote method, for messages; empty if the operation is enough and the body is JSON.
        advice: What to check if the response belongs to another request.
    """
    prefix = f"{method}: " if method else ""
    try:
        return decode(body)
    except AnotherAnswerError as e:
        # The body and the decoder's variables may hold vended credentials, which an error collector would record.
        del body, decode
        raise Failure("mismatch", message=f"{prefix}{e}{advice}") from without_frames(e)
    except UNREADABLE as e:
        outline = "" if method else f": {_outline(body)}"
        del body, decode
        message = f"{prefix}an answer of unknown form ({type(e).__name__}: {e}){outline}"
        raise Failure("unreadable", message=message) from without_frames(e)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that a server asks to wait; None if it does not ask.

    Spec: RFC 9110, section 10.2.3, a number of seconds or a date; and AWS's own header, in milliseconds.

    Args:
        headers: Headers of the response; a mapping that is not case-insensitive has names in lower case.
    """
    if (value := headers.get("retry-after")) is not None and (seconds := _seconds(value.strip())) is not None:
        return seconds
    milliseconds = headers.get("x-amz-retry-after", "").strip()
    return float(milliseconds) / 1000 if milliseconds.isdecimal() else None


def _seconds(value: str) -> float | None:
    if value.isdecimal():
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _outline(body: Any) -> str:
    # Only the names are shown, because the values may be credentials.
    if isinstance(body, dict):
        return f"it holds {', '.join(map(str, body))}"[:_OUTLINE_LENGTH]
    return f"it is a {type(body).__name__}"
