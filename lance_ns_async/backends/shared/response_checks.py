"""Type and identity checks that decoders apply to the values in responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lance_ns_async.errors import AnotherAnswerError, shortened

_NAME_LIMIT = 200

_DESCRIPTIONS = {"identifiers", "metadata", "namespaces", "schemas", "storage_location", "table", "tables"} | {
    "Catalog",
    "CatalogList",
    "Database",
    "DatabaseList",
    "Table",
    "TableList",
}
"""Keys of descriptions and listings. Responses to removals never have them, nor do Glue's responses to changes."""


def text(value: Any) -> str:
    """Returns the value; raises TypeError if it is not a string."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a string")
    return value


def texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Returns the mapping, empty for None; raises TypeError if a value is not a string."""
    return {key: text(value) for key, value in (values or {}).items()}


def check_name(requested_name: str, response_name: Any, kind: str = "table") -> None:
    """Raises AnotherAnswerError if a response describes another object than the requested one.

    The comparison ignores case, because some catalogs fold it. A response without a name passes, because it cannot be
    checked.

    Args:
        requested_name: The requested name.
        response_name: The name in the response.
        kind: The kind of the object, for the error message.
    """
    if isinstance(response_name, str) and response_name.casefold() != requested_name.casefold():
        raise AnotherAnswerError(f"an answer about the {kind} {shortened(response_name, _NAME_LIMIT)!r}")


def check_levels(requested_levels: Sequence[str], response_levels: Any) -> None:
    """Raises AnotherAnswerError if a response describes another namespace than the requested one; see `check_name`."""
    if isinstance(response_levels, list) and all(isinstance(level, str) for level in response_levels):
        check_name("\x1f".join(requested_levels), "\x1f".join(response_levels), "namespace")


def check_empty(response: Any) -> None:
    """Checks the response to a change, which has no content; raises AnotherAnswerError if it describes an object."""
    if isinstance(response, dict) and (keys := _DESCRIPTIONS & response.keys()):
        names = ", ".join(sorted(keys))
        raise AnotherAnswerError(f"an answer with {names}, although the answer to this change has no content")


def ignore(response: Any) -> None:
    """Ignores the content of a response: that the call succeeded is enough."""
