"""What a caller asks for: table ids, whole namespaces and glob patterns, in any mixture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from types import EllipsisType
from typing import TypeAlias

from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import DELIMITER, Id, NamespaceId, TableId

What: TypeAlias = str | Id | Iterable[str | Iterable[str]]
"""One item or many. A TableId or a sequence of names is a table, a NamespaceId every table directly in it.

A string is a table id too, its names joined by `$`, or by `.` where it has no `$`. With `*`, `?` or `[` in it
it is a pattern, matched name by name and case-sensitively; `**` is any number of namespaces, none included.
"""

Level: TypeAlias = str | re.Pattern[str] | EllipsisType
"""A name, a glob for one, or `...` for any number of names."""

_ANY_NAME = re.compile(".*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which tables are meant, where they are not named one by one."""

    asked: str | NamespaceId
    """As it was asked for."""
    levels: tuple[Level, ...]
    """The last is the table's own and never `...`."""

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """The pattern a string with wildcards means."""
        names = _split(text)
        if not all(names):
            raise InvalidInputError(f"pattern {text!r}: a name in it is empty; join names by '.' or by {DELIMITER!r}")
        if names[-1] == "**":
            names.append("*")
        return cls(text, tuple(map(_level, names)))

    @classmethod
    def inside(cls, namespace: NamespaceId) -> Pattern:
        """Every table directly in a namespace."""
        return cls(namespace, (*namespace, _ANY_NAME))

    @property
    def start(self) -> NamespaceId:
        """The deepest namespace that holds all tables it could match."""
        names: list[str] = []
        for level in self.levels[:-1]:
            if not isinstance(level, str):
                break
            names.append(level)
        return NamespaceId(names)

    @property
    def table_name(self) -> str | None:
        """The name of every table it could match, where there is only one and the depth is known."""
        last = self.levels[-1]
        return last if isinstance(last, str) and ... not in self.levels else None

    def matches(self, id: TableId) -> bool:
        """Whether the table is meant."""
        return len(self.levels) in self._used(id)

    def holds(self, namespace: NamespaceId) -> bool:
        """Whether a table directly in the namespace could match."""
        return len(self.levels) - 1 in self._used(namespace)

    def leads(self, namespace: NamespaceId) -> bool:
        """Whether a table in a namespace below this one could match."""
        return any(self._open(namespace))

    def concerns(self, namespace: NamespaceId) -> bool:
        """Whether what it matches could depend on the namespace."""
        return bool(self._used(namespace))

    def children(self, namespace: NamespaceId) -> set[str] | None:
        """The names of the namespaces to look at below this one; None where only a listing can tell."""
        levels = list(self._open(namespace))
        names = {level for level in levels if isinstance(level, str)}
        return names if len(names) == len(levels) else None

    def _open(self, namespace: NamespaceId) -> Iterator[Level]:
        """What the next namespace on the way down may be."""
        for i in self._used(namespace):
            if i < len(self.levels) - 1:
                yield self.levels[i]

    def _used(self, names: Iterable[str]) -> set[int]:
        """How many of the levels the names may use up; nothing where they do not fit."""
        used = self._skipped({0})
        for name in names:
            used = self._skipped(
                {i if self.levels[i] is ... else i + 1 for i in used if i < len(self.levels) and self._fits(i, name)}
            )
        return used

    def _skipped(self, used: set[int]) -> set[int]:
        """The same, and what is used up where a `...` stands for nothing."""
        for i in list(used):
            while i < len(self.levels) and self.levels[i] is ...:
                i += 1
                used.add(i)
        return used

    def _fits(self, i: int, name: str) -> bool:
        match self.levels[i]:
            case str() as wanted:
                return name == wanted
            case re.Pattern() as glob:
                return glob.fullmatch(name) is not None
            case _:
                return True


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for, sorted into what is named and what has to be searched for."""

    ids: tuple[TableId, ...]
    patterns: tuple[Pattern, ...]

    @classmethod
    def read(cls, what: What) -> Wanted:
        """Reads an iterable to its end; raises InvalidInputError for what can be no id."""
        ids: dict[TableId, None] = {}
        patterns: dict[Pattern, None] = {}
        for item in [what] if isinstance(what, str | Id) else what:
            if isinstance(item, NamespaceId):
                patterns[Pattern.inside(item)] = None
            elif isinstance(item, str) and has_wildcard(item):
                patterns[Pattern.parse(item)] = None
            else:
                ids[table_id(item)] = None
        return cls(tuple(ids), tuple(patterns))


def table_id(item: str | Iterable[str]) -> TableId:
    """The id a string without wildcards or a sequence of names means."""
    if isinstance(item, TableId):
        return item
    return TableId(_split(item) if isinstance(item, str) else item)


def has_wildcard(text: str) -> bool:
    """Whether the string is a pattern."""
    return any(character in text for character in "*?[")


def _split(text: str) -> list[str]:
    return text.split(DELIMITER if DELIMITER in text else ".")


def _level(name: str) -> Level:
    if name == "**":
        return ...
    return re.compile(translate(name)) if has_wildcard(name) else name
