"""Selection of tables: table ids, whole namespaces and glob patterns, in any mixture."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from glob import escape
from itertools import groupby
from types import EllipsisType
from typing import TypeAlias

from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import shortened
from lance_ns_async.model import DELIMITER, MAX_LEVELS, Id, NamespaceId, TableId, is_pattern, split_names

What: TypeAlias = str | Id | Iterable[str | Iterable[str]]
"""One item or many. A TableId or a sequence of names is one table; a NamespaceId is every table directly in it.

A string is a table id, as `TableId` reads it: names joined by `$`, or by `.` if it contains no `$`. A string with
`*`, `?` or `[` is a pattern, which is matched name by name and case-sensitively. `**` matches any number of namespaces,
including none.
"""

Level: TypeAlias = str | re.Pattern[str] | EllipsisType
"""A name, a compiled glob for one name, or `...` for any number of names."""

_ANY_NAME = re.compile(".*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A selection of tables by a glob pattern or by their namespace."""

    item: str | NamespaceId
    """The original item of the request."""
    levels: tuple[Level, ...]
    """The levels from the root; the last one is for the table's own name and is never `...`."""

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Returns the pattern for a string with wildcards.

        Raises:
            InvalidInputError: A name in the string is empty, or there are too many.
        """
        names = split_names(text)
        if not names or not all(names):
            raise InvalidInputError(f"pattern {text!r}: contains an empty name; join names by '.' or by {DELIMITER!r}")
        # Several `**` in a row mean the same as one.
        names = [name for it, same in groupby(names) for name in (["**"] if it == "**" else same)]
        if len(names) > MAX_LEVELS:
            raise InvalidInputError(
                f"pattern {shortened(text, 80)!r}: has {len(names)} levels; use {MAX_LEVELS} or fewer"
            )
        if names[-1] == "**":
            names.append("*")
        return cls(text, tuple(map(_level, names)))

    @classmethod
    def inside(cls, namespace: NamespaceId) -> Pattern:
        """Returns the pattern for every table directly in a namespace."""
        return cls(namespace, (*namespace, _ANY_NAME))

    @property
    def text(self) -> str:
        """A string from which `parse` makes an equal pattern."""
        if isinstance(self.item, str):
            return self.item
        return DELIMITER.join((*map(escape, self.item), "*"))

    @property
    def start(self) -> NamespaceId:
        """The deepest namespace that contains all tables that could match."""
        names: list[str] = []
        for level in self.levels[:-1]:
            if not isinstance(level, str):
                break
            names.append(level)
        return NamespaceId(names)

    @property
    def table_name(self) -> str | None:
        """The name of all tables that could match; None if several names or depths are possible."""
        last = self.levels[-1]
        return last if isinstance(last, str) and ... not in self.levels else None

    def matches(self, id: TableId) -> bool:
        """Returns whether the pattern matches the table."""
        return matcher([self])(id)

    def holds(self, namespace: NamespaceId) -> bool:
        """Returns whether a table directly in the namespace could match."""
        return len(self.levels) - 1 in self._used(namespace)

    def leads(self, namespace: NamespaceId) -> bool:
        """Returns whether a table in a namespace below this one could match."""
        return any(self._open(namespace))

    def concerns(self, namespace: NamespaceId) -> bool:
        """Returns whether the tables that match could depend on the namespace."""
        return bool(self._used(namespace))

    def covers(self, namespace: NamespaceId) -> bool:
        """Returns whether every table in the namespace, and below it, matches."""
        return self.levels[-2:] == (..., _ANY_NAME) and len(self.levels) - 2 in self._used(namespace)

    def children(self, namespace: NamespaceId) -> set[str] | None:
        """Returns the names of the child namespaces that could lead to a match; None if a listing is necessary."""
        levels = list(self._open(namespace))
        names = {level for level in levels if isinstance(level, str)}
        return names if len(names) == len(levels) else None

    def _open(self, namespace: NamespaceId) -> Iterator[Level]:
        """Yields the levels that a child of the namespace may match."""
        for i in self._used(namespace):
            if i < len(self.levels) - 1:
                yield self.levels[i]

    def _used(self, names: Iterable[str]) -> set[int]:
        """Returns the possible numbers of levels that the names match; empty if the names do not match."""
        used = self._skip_wildcards({0})
        for name in names:
            used = self._skip_wildcards(
                {
                    i if self.levels[i] is ... else i + 1
                    for i in used
                    if i < len(self.levels) and _fits(self.levels[i], name)
                }
            )
        return used

    def _skip_wildcards(self, used: set[int]) -> set[int]:
        """Adds the numbers of levels for the case that a `...` matches no name."""
        # No two of them follow each other.
        return used | {i + 1 for i in used if i < len(self.levels) and self.levels[i] is ...}


@dataclass(frozen=True, slots=True)
class Selection:
    """A parsed request: the tables named by id, and the patterns that need a search."""

    ids: tuple[TableId, ...]
    patterns: tuple[Pattern, ...]

    @classmethod
    def read(cls, what: What) -> Selection:
        """Parses a request; consumes an iterable.

        Raises:
            InvalidInputError: An item is neither a valid id nor a valid pattern.
        """
        return cls.of(map(parse_item, items(what)))

    @classmethod
    def of(cls, parsed: Iterable[TableId | Pattern]) -> Selection:
        """Returns the selection of these tables and patterns, each once."""
        ids: dict[TableId, None] = {}
        patterns: dict[Pattern, None] = {}
        for item in parsed:
            if isinstance(item, Pattern):
                patterns[item] = None
            else:
                ids[item] = None
        return cls(tuple(ids), tuple(patterns))


def items(what: What) -> Iterable[str | Iterable[str]]:
    """Returns the items of a request; raises InvalidInputError if it cannot have any."""
    if not isinstance(what, Iterable):
        kind = type(what).__name__
        raise InvalidInputError(
            f"tables: must be an id, a pattern like 'sales.*', or several of them, not of type {kind}"
        )
    return [what] if isinstance(what, str | Id) else what


def in_memory(what: What) -> What:
    """Returns an equal request that can be read again, and in any thread."""
    return what if isinstance(what, str | Id) else list(items(what))


def parse_item(item: str | Iterable[str]) -> TableId | Pattern:
    """Returns the table or the pattern that an item of a request means."""
    if isinstance(item, NamespaceId):
        return Pattern.inside(item)
    if isinstance(item, str) and is_pattern(item):
        return Pattern.parse(item)
    return table_id(item)


def matcher(patterns: Sequence[Pattern]) -> Callable[[TableId], bool]:
    """Returns a function that says whether any pattern matches a table; it is fast for the tables of one namespace."""
    last_levels: dict[tuple[str, ...], Sequence[Level]] = {}

    def matches(id: TableId) -> bool:
        parent = id[:-1]
        levels = last_levels.get(parent)
        if levels is None:
            # The last level is that of the table's own name alone.
            levels = [pattern.levels[-1] for pattern in patterns if pattern.holds(NamespaceId(parent))]
            last_levels[parent] = [_ANY_NAME] if _ANY_NAME in levels else levels
        return any(_fits(level, id[-1]) for level in levels)

    return matches


def table_id(item: str | Iterable[str]) -> TableId:
    """Returns the table id for a string without wildcards or for a sequence of names."""
    return item if isinstance(item, TableId) else TableId(item)


def _fits(level: Level, name: str) -> bool:
    match level:
        case str() as exact:
            return name == exact
        case re.Pattern() as glob:
            return glob.fullmatch(name) is not None
        case _:
            return True


@lru_cache(1024)
def _level(name: str) -> Level:
    if name == "**":
        return ...
    if name == "*":
        return _ANY_NAME
    return re.compile(translate(name)) if is_pattern(name) else name
