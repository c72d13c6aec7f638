"""Type and identity checks that decoders apply to the values in responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lance_ns_async.errors import AnotherAnswerError, shortened

_SHOWN = 200

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
        raise TypeError(f"{type(value).__name__} where a text is wanted")
    return value


def texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Returns the mapping, empty for None; raises TypeError if a value is not a string."""
    return {key: text(value) for key, value in (values or {}).items()}


def check_name(asked: str, answered: Any, kind: str = "table") -> None:
    """Raises AnotherAnswerError if a response describes another object than the requested one.

    The comparison ignores case, because some catalogs fold it. A response without a name passes, because it cannot be
    checked.

    Args:
        asked: The requested name.
        answered: The name in the response.
        kind: The kind of the object, for the error message.
    """
    if isinstance(answered, str) and answered.casefold() != asked.casefold():
        raise AnotherAnswerError(f"an answer about the {kind} {shortened(answered, _SHOWN)!r}")


def check_levels(asked: Sequence[str], answered: Any) -> None:
    """Raises AnotherAnswerError if a response describes another namespace than the requested one; see `check_name`."""
    if isinstance(answered, list) and all(isinstance(level, str) for level in answered):
        check_name("\x1f".join(asked), "\x1f".join(answered), "namespace")


def done(answer: Any) -> None:
    """Checks the response to a change, which has no content; raises AnotherAnswerError if it describes an object."""
    if isinstance(answer, dict) and (described := _DESCRIPTIONS & answer.keys()):
        held = ", ".join(sorted(described))
        raise AnotherAnswerError(f"an answer that holds {held}, and the answer to this change holds nothing")


def nothing(answer: Any) -> None:
    """Ignores the content of a response: that the call succeeded is enough."""
