"""Identity of registrations in catalogs that store none: a random value in the table's properties."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

KEY = "lance_ns.registration"
"""The property that holds the identity. Responses omit it, and a replacement in place keeps it.

Behind a slash, it may have a number of the last change, for catalogs that compare a property before a change.
"""

REST_KEY = "lance_ns.rest_registration"
"""The same for servers of the REST protocol, whose own catalog may use the other property."""


def add_identity(properties: Mapping[str, str], *, key: str = KEY) -> dict[str, str]:
    """Returns the properties of a new registration, with a unique identity added."""
    return {**properties, key: uuid4().hex}


def with_new_change(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of a registration that is changed in place, with another number of the last change."""
    own = properties.get(KEY)
    return {**properties, **({} if own is None else {KEY: f"{own.partition('/')[0]}/{uuid4().hex}"})}


def remove_identity(properties: Mapping[str, str], *, key: str = KEY) -> dict[str, str]:
    """Returns the properties without the identity, as responses contain them."""
    return {name: value for name, value in properties.items() if name != key}


def identity(properties: Mapping[str, str], *otherwise: object, key: str = KEY) -> str | None:
    """Returns the identity of the registration with these properties.

    Args:
        properties: All properties in the catalog.
        otherwise: Values that identify a registration made by another client, such as the creation time; None values
            are skipped.
        key: The property that holds the identity.

    Returns:
        The identity; None if there is neither the property nor another value.
    """
    if (own := properties.get(key)) is not None:
        return own.partition("/")[0]
    return "/".join(str(part) for part in otherwise if part is not None) or None
