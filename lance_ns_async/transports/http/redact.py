"""Servers that repeat what was sent to them: their words without the secrets in them."""

from __future__ import annotations

from collections.abc import Iterable

_LEAST = 4
"""Characters of the shortest secret: what is shorter is in many a word."""


def unsaid(text: str, secrets: Iterable[str | None]) -> str:
    """The text without the secrets; None is no secret."""
    for secret in secrets:
        if secret and len(secret) >= _LEAST:
            text = text.replace(secret, "***")
    return text
