"""Ids on the command line: names joined by `$`, or by `.` where there is no `$`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lance_ns_async.model import DELIMITER, Id, NamespaceId, TableId

_WILD = frozenset("*?[")


def names(text: str) -> list[str]:
    """The names in an id; a `$` in front only says that a dot is part of a name, as in `$v1.2`."""
    if DELIMITER in text:
        return text.removeprefix(DELIMITER).split(DELIMITER) if text != DELIMITER else []
    return text.split(".") if text else []


def table(text: str) -> TableId:
    """The table of that id."""
    return TableId(names(text))


def namespace(text: str) -> NamespaceId:
    """The namespace of that id; nothing and `$` are the root."""
    return NamespaceId(names(text))


def is_pattern(text: str) -> bool:
    """Whether the text may stand for several tables."""
    return not _WILD.isdisjoint(text)


def written(id: Id) -> str:
    """The id as text that `names` reads back."""
    text = str(id)
    return f"{DELIMITER}{text}" if len(id) == 1 and "." in text else text


def lines(source: Iterable[str]) -> Iterator[str]:
    """The ids and patterns in a text that has one a line; empty lines and those that begin with `#` say nothing."""
    for line in source:
        text = line.strip()
        if text and not text.startswith("#"):
            yield text
