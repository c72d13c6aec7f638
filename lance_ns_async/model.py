"""The words the package speaks: ids, tables and pages, all of them immutable values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

from lance_namespace.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

DELIMITER = "$"
"""Joins the names of an id where it is written as one string, as the Lance Namespace spec does."""

EXPIRY = "expires_at_millis"
"""The storage option that tells when those beside it end."""

T = TypeVar("T")


class Id(tuple[str, ...]):
    """The names that lead from the root of a catalog to one of its objects."""

    __slots__ = ()
    kind: ClassVar[str]

    def __new__(cls, names: Iterable[str] = ()) -> Self:
        if isinstance(names, str):
            raise InvalidInputError(
                f"{cls.kind} id {names!r}: one string where a list of names is wanted; "
                f"use {cls.__name__}.parse({names!r}) or {names.split(DELIMITER)!r}"
            )
        self = super().__new__(cls, names)
        given: tuple[object, ...] = self
        for name in given:
            if not isinstance(name, str) or not name:
                raise InvalidInputError(f"{cls.kind} id {list(self)!r}: every name must be a non-empty string")
            if not name.isascii():
                _check_encodable(cls.kind, self, name)
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """The id written as names joined by `$`; the empty string and `$` are the root."""
        return cls(text.split(DELIMITER) if text not in ("", DELIMITER) else ())

    def __str__(self) -> str:
        return DELIMITER.join(self) or DELIMITER

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


class NamespaceId(Id):
    """Names a namespace; without names it is the root."""

    __slots__ = ()
    kind = "namespace"

    @property
    def parent(self) -> NamespaceId:
        """The namespace one level up; the root is its own parent."""
        return NamespaceId(self[:-1])

    @property
    def name(self) -> str:
        """The last name; the empty string for the root."""
        return self[-1] if self else ""

    def child(self, name: str) -> NamespaceId:
        """The namespace of that name inside this one."""
        return NamespaceId((*self, name))

    def table(self, name: str) -> TableId:
        """The table of that name inside this namespace."""
        return TableId((*self, name))


class TableId(Id):
    """Names a table: at least one name, of which the last is the table's own."""

    __slots__ = ()
    kind = "table"

    def __new__(cls, names: Iterable[str]) -> Self:
        self = super().__new__(cls, names)
        if not self:
            raise InvalidInputError("table id []: it needs at least the table's own name")
        return self

    @property
    def parent(self) -> NamespaceId:
        """The namespace that holds the table."""
        return NamespaceId(self[:-1])

    @property
    def name(self) -> str:
        """The table's own name."""
        return self[-1]


@dataclass(frozen=True, slots=True)
class Table:
    """A table as its catalog describes it: where it is and how to read it."""

    id: TableId
    location: str
    """Where the Lance dataset is: a URI or a path, as `lance.dataset` takes it."""
    properties: Mapping[str, str] | None = None
    """What the catalog keeps about the table; None where it keeps no properties."""
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    """Options for `lance.dataset`, secrets included; None where there are none."""
    managed_versioning: bool = False
    """Whether the catalog, not the storage, commits the table's versions."""
    version: int | None = None
    """The current version, where the catalog itself manages versions."""
    schema: pa.Schema | None = None
    """The columns as the catalog keeps them; None where it keeps none."""
    registration: str | None = field(default=None, compare=False)
    """Identity of the registration: another one after the name was removed and declared again.

    None where nothing tells them apart. Not compared, for not every listing has it.
    """


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing."""

    items: Sequence[T]
    token: str | None = None
    """What to ask the next page with; None on the last page."""


def is_same(one: Table, other: Table) -> bool:
    """Returns whether two descriptions of a name are of one registration, as far as the catalog tells."""
    if one.location.rstrip("/") != other.location.rstrip("/"):
        return False
    if one.registration is not None and other.registration is not None:
        return one.registration == other.registration
    return has(other, one.properties or {})


def has(table: Table, properties: Mapping[str, str]) -> bool:
    """Returns whether a table is registered with these properties, whatever else its catalog adds."""
    kept = table.properties or {}
    return all(kept.get(key) == value for key, value in properties.items())


def _check_encodable(kind: str, id: Id, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as e:
        raise InvalidInputError(f"{kind} id {list(id)!r}: {name!r} cannot be written as UTF-8") from e
