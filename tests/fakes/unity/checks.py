"""Checks of a Unity Catalog server for names, properties and parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .errors import UnityError, internal, invalid

_NAME = re.compile(r"[a-zA-Z0-9_@-]+")
_PAGE = 100


def checked_name(name: Any) -> str:
    """Returns the name of a new catalog, schema or table, after checks."""
    if not name:
        raise invalid("Name cannot be empty")
    if len(name) > 255:
        raise invalid("Name cannot be longer than 255 characters")
    if not _NAME.fullmatch(name):
        raise invalid("Name cannot contain a period, space, forward-slash, or control characters")
    return str(name)


def properties_read(properties: Any) -> dict[str, str | None]:
    """Returns properties as the server reads them: missing ones are empty, scalars become strings."""
    if properties is None:
        return {}
    if not isinstance(properties, Mapping) or any(isinstance(value, dict | list) for value in properties.values()):
        raise invalid("Cannot deserialize value of type `java.lang.String`")
    return {key: text_of(value) for key, value in properties.items()}


def check_properties(properties: Mapping[str, str | None]) -> None:
    """Raises an error for properties that the server's database refuses."""
    for key, value in properties.items():
        if value is None:
            raise internal("not-null property references a null or transient value: PropertyDAO.value")
        # The database counts UTF-16 units.
        if any(len(text.encode("utf-16-le", "surrogatepass")) > 2 * 255 for text in (key, value)):
            column = 'column "PROPERTY_VALUE CHARACTER VARYING(255)"'
            raise internal(f"could not execute statement [Value too long for {column}]")


def needed(params: Mapping[str, str], name: str) -> str:
    """Returns a parameter that is required."""
    if name not in params:
        raise invalid(f"Mandatory parameter/header is missing: {name}")
    return params[name]


def page_size(params: Mapping[str, str]) -> int:
    """Returns the maximum number of entries of a page."""
    text = params.get("max_results") or "0"
    try:
        size = int(text)
    except ValueError:
        raise _no_integer(text) from None
    if size >= 2**31:
        raise _no_integer(text)
    if size < 0:
        raise invalid("maxResults must be greater than or equal to 0")
    return min(size or _PAGE, _PAGE)


def flag(params: Mapping[str, str], name: str) -> bool:
    """Returns a parameter that is true or false; the default is false."""
    match params.get(name, "false").lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
    raise invalid(f"Can't convert '{params[name]}' to type 'Boolean'.")


def _no_integer(text: str) -> UnityError:
    return invalid(f'For input string: "{text}"')


def text_of(value: Any) -> str | None:
    """Returns a value as the server reads it where it expects a string: numbers and booleans become text."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
