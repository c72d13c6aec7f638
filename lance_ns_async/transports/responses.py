"""Processing of responses on all wires: decoding, redaction, and the pause that the server requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


def decode_body(decode: Callable[[Any], T], body: Any, *, method: str = "") -> T:
    """Returns the result of a decoder.

    Args:
        decode: Converts the body.
        method: The name of the remote method, for messages; empty if the operation is enough and the body is JSON.
    """
    try:
        return decode(body)
    except (AnotherAnswerError, *UNREADABLE) as e:
        failure = decoding_failure(e, "" if method else outline(body), method=method)
        # The body and the decoder's variables may hold vended credentials, which an error collector would record.
        del body, decode
        raise failure from without_frames(e)


def decoding_failure(error: Exception, content: str, *, method: str = "", advice: str = "") -> Failure:
    """Returns the failure for an error of a decoder.

    Args:
        error: The error, one of `UNREADABLE` or an AnotherAnswerError.
        content: The outline of the response; empty for none.
        method: The name of the remote method, for messages; empty if the operation is enough.
        advice: What to check if the response belongs to another request.
    """
    prefix = f"{method}: " if method else ""
    if isinstance(error, AnotherAnswerError):
        return Failure("mismatch", message=f"{prefix}{error}{advice}")
    what = f"an answer of unknown form ({type(error).__name__}: {error})"
    return Failure("unreadable", message=f"{prefix}{what}{f': {content}' if content else ''}")


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


def outline(body: Any) -> str:
    """Returns a short description of a response of unknown form."""
    # Only the names are shown, because the values may be credentials.
    if isinstance(body, dict):
        return f"it holds {', '.join(map(str, body))}"[:_OUTLINE_LENGTH]
    return f"it is a {type(body).__name__}"


_MIN_SECRET_LENGTH = 4  # Minimum length of a redacted secret; a shorter text occurs in ordinary words.


def redact(text: str, secrets: Iterable[str | None]) -> str:
    """Returns the text with `***` instead of each secret; None and secrets of under 4 characters are skipped."""
    for secret in secrets:
        if secret and len(secret) >= _MIN_SECRET_LENGTH:
            text = text.replace(secret, "***")
    return text
