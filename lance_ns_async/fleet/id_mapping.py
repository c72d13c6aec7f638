"""The mapping of a copy: which id of the target each id of the source becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import NamespaceId, TableId

NamespaceText: TypeAlias = str | Iterable[str]
"""A namespace id, or the text that `NamespaceId` reads; the empty string is the root."""

To: TypeAlias = NamespaceText | Mapping[str, str] | Callable[[TableId], Iterable[str]] | None
"""Where the copies go.

None keeps all ids. A namespace becomes the parent of all ids. A mapping replaces namespaces at the beginning of ids,
the longest one that matches: `{"hive": "lake"}` turns `hive.sales.orders` into `lake.sales.orders`, `{"hive": ""}`
drops a level and `{"": "lake"}` adds one. A function returns the names of the target's table id.
"""

Rename: TypeAlias = Literal["lower"] | Callable[[str], str] | None
"""How names change: `lower` for catalogs that store lower case, or a function of one name. None keeps names."""


@dataclass(frozen=True, slots=True)
class IdMapping:
    """The parsed rules from ids of the source to ids of the target."""

    rules: Sequence[tuple[NamespaceId, NamespaceId]] = ((NamespaceId(), NamespaceId()),)
    """Pairs of a namespace of the source and its replacement, the deepest first."""
    function: Callable[[TableId], Iterable[str]] | None = None
    """Replaces the rules."""
    rename: Rename = None
    """Applied to each name that comes from the source, not to the replacements of the rules."""

    @classmethod
    def parse(cls, to: To, rename: Rename = None) -> IdMapping:
        """Returns the mapping for the arguments of a copy.

        Raises:
            InvalidInputError: A namespace is invalid, or appears twice.
        """
        if rename is not None and rename != "lower" and not callable(rename):
            raise InvalidInputError(f"rename {rename!r}: must be 'lower' or a function of a name")
        if to is None:
            return cls(rename=rename)
        if isinstance(to, Mapping):
            rules: dict[NamespaceId, NamespaceId] = {}
            for source, target in to.items():
                if (source_id := _parse(source)) in rules:
                    raise InvalidInputError(f"to: the namespace {source!r} appears twice")
                rules[source_id] = _parse(target)
            return cls(sorted(rules.items(), key=lambda rule: -len(rule[0])), rename=rename)
        if callable(to):
            return cls(function=to, rename=rename)
        return cls([(NamespaceId(), _parse(to))], rename=rename)

    @property
    def is_invertible(self) -> bool:
        """Whether `sources` can determine the source ids that are mapped to an id of the target."""
        return self.function is None and not callable(self.rename)

    def table(self, id: TableId) -> TableId:
        """Returns the id of a table in the target.

        Raises:
            InvalidInputError: No rule applies, or the result is not a valid id.
        """
        if self.function is not None:
            return TableId(self._new_name(name) for name in self.function(id))
        rule = self._rule(id.parent)
        if rule is None:
            namespaces = ", ".join(str(source) for source, _ in self.rules)
            raise InvalidInputError(f"table {id}: no rule of `to` applies to it; the rules are for {namespaces}")
        return TableId(self._map(id, rule))

    def namespace(self, id: NamespaceId) -> NamespaceId | None:
        """Returns the id of a namespace in the target; None if no rule applies, or a function maps the tables."""
        rule = None if self.function is not None else self._rule(id)
        return None if rule is None else NamespaceId(self._map(id, rule))

    def sources(self, id: TableId) -> Iterator[TableId]:
        """Yields the source ids that are mapped to `id`, with the target's spelling of names; needs `is_invertible`."""
        for source, target in self.rules:
            if id.parent[: len(target)] == target:
                candidate = NamespaceId((*source, *id.parent[len(target) :]))
                rule = self._rule(candidate)
                if rule is not None and rule[0] == source:
                    yield candidate.table(id.name)

    def images(self, start: NamespaceId) -> Sequence[NamespaceId]:
        """Returns the namespaces that contain all copies of tables below `start`; requires `is_invertible`."""
        starts: dict[NamespaceId, None] = {}
        inner = self.namespace(start)
        if inner is not None:
            starts[inner] = None
        for source, target in self.rules:
            if len(source) > len(start) and source[: len(start)] == start:
                starts[target] = None
        return list(starts)

    def _rule(self, id: NamespaceId) -> tuple[NamespaceId, NamespaceId] | None:
        return next((rule for rule in self.rules if id[: len(rule[0])] == rule[0]), None)

    def _map(self, id: Sequence[str], rule: tuple[NamespaceId, NamespaceId]) -> tuple[str, ...]:
        source, target = rule
        return (*target, *(self._new_name(name) for name in id[len(source) :]))

    def _new_name(self, name: str) -> str:
        if self.rename is None:
            return name
        return name.lower() if self.rename == "lower" else self.rename(name)


def _parse(names: NamespaceText) -> NamespaceId:
    return names if isinstance(names, NamespaceId) else NamespaceId(names)
