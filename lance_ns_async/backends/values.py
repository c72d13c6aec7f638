"""What decoders take out of answers, and refuse where it is of another type than it must be."""

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
"""What descriptions and listings of catalogs hold, and no answer to a removal does, nor one of Glue to any change."""


def text(value: Any) -> str:
    """The value, which must be a text."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a text is wanted")
    return value


def texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    """The values of an object that may be absent, which must all be texts."""
    return {key: text(value) for key, value in (values or {}).items()}


def check_name(asked: str, answered: Any, kind: str = "table") -> None:
    """Raises AnotherAnswerError where an answer is about another `kind` than was asked for.

    Case is left aside, because catalogs fold it. An answer without a name passes, because nothing can be told of it.
    """
    if isinstance(answered, str) and answered.casefold() != asked.casefold():
        raise AnotherAnswerError(f"an answer about the {kind} {shortened(answered, _SHOWN)!r}")


def check_levels(asked: Sequence[str], answered: Any) -> None:
    """Raises AnotherAnswerError where an answer is about another namespace than was asked for; see `check_name`."""
    if isinstance(answered, list) and all(isinstance(level, str) for level in answered):
        check_name("\x1f".join(asked), "\x1f".join(answered), "namespace")


def done(answer: Any) -> None:
    """Reads the answer to a change, which holds nothing; raises AnotherAnswerError where one describes something."""
    if isinstance(answer, dict) and (described := _DESCRIPTIONS & answer.keys()):
        held = ", ".join(sorted(described))
        raise AnotherAnswerError(f"an answer that holds {held}, and the answer to this change holds nothing")


def nothing(answer: Any) -> None:
    """An answer that says no more than that the call succeeded."""
