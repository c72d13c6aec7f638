"""Ids on the command line: names joined by `$`, or by `.` if the id has no `$`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lance_ns_async.model import DELIMITER, Id, NamespaceId, TableId

_WILD = frozenset("*?[")


def names(text: str) -> list[str]:
    """Returns the names in an id; a leading `$` only means that dots are part of names, as in `$v1.2`."""
    if DELIMITER in text:
        return text.removeprefix(DELIMITER).split(DELIMITER) if text != DELIMITER else []
    return text.split(".") if text else []


def table(text: str) -> TableId:
    """Returns the id of a table from its text."""
    return TableId(names(text))


def namespace(text: str) -> NamespaceId:
    """Returns the id of a namespace from its text; an empty text and `$` are the root."""
    return NamespaceId(names(text))


def is_pattern(text: str) -> bool:
    """Returns whether the text is a pattern, which can match several tables."""
    return not _WILD.isdisjoint(text)


def format_id(id: Id) -> str:
    """Returns the id as text that `names` can parse."""
    text = str(id)
    return f"{DELIMITER}{text}" if len(id) == 1 and "." in text else text


def lines(source: Iterable[str]) -> Iterator[str]:
    """Yields the ids and patterns of a text with one per line; ignores empty lines and lines that begin with `#`."""
    for line in source:
        text = line.strip()
        if text and not text.startswith("#"):
            yield text
