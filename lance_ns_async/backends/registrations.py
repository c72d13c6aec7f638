"""Identity of a registration in catalogs that keep none: a random value among the table's properties."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

KEY = "lance_ns.registration"
"""The property that holds it. Answers do not show it, and a replacement in place keeps it."""


def marked(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of a new registration, with an identity that no other one has."""
    return {**properties, KEY: uuid4().hex}


def unmarked(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties as answers show them."""
    return {key: value for key, value in properties.items() if key != KEY}


def identity(properties: Mapping[str, str], *otherwise: object) -> str | None:
    """Returns the identity of the registration with these properties.

    Args:
        properties: All that the catalog keeps.
        otherwise: What tells registrations apart that other clients made, such as the time of creation; None is
            left out.
    """
    if (own := properties.get(KEY)) is not None:
        return own
    return "/".join(str(part) for part in otherwise if part is not None) or None
