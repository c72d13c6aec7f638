"""Redaction of secrets that a server repeats in its messages."""

from __future__ import annotations

from collections.abc import Iterable

_LEAST = 4  # Minimum length of a redacted secret; a shorter text occurs in ordinary words.


def redact(text: str, secrets: Iterable[str | None]) -> str:
    """Returns the text with `***` instead of each secret; None and secrets of under 4 characters are skipped."""
    for secret in secrets:
        if secret and len(secret) >= _LEAST:
            text = text.replace(secret, "***")
    return text
