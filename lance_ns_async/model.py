"""Immutable values used across the package: ids, tables and pages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar
from urllib.parse import unquote, urlsplit

from lance_namespace.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

DELIMITER = "$"
"""Joins the names of an id in its string form, as in the Lance Namespace spec."""

MAX_LEVELS = 100
"""Maximum number of names of an id, and of levels of a pattern; some work on ids is quadratic in it."""

WATCH_EVERY, EXAMINE_EVERY = 10.0, 60.0
"""Default seconds between two looks of a watch, and those in which it examines every table once."""

EXPIRY = "expires_at_millis"
"""The storage option with the time at which the other options expire."""

_WILD = frozenset("*?[")

_LOCAL = ("file+uring", "file-object-store")  # Further schemes of Lance for local files, besides `file`.

T = TypeVar("T")


def split_names(text: str) -> list[str]:
    """Returns the names in the text of an id or a pattern, without checks."""
    if DELIMITER in text:
        return text.removeprefix(DELIMITER).split(DELIMITER) if text != DELIMITER else []
    return text.split(".") if text else []


def is_pattern(text: str) -> bool:
    """Returns whether the text is a pattern, which can match several tables."""
    return not _WILD.isdisjoint(text)


class Id(tuple[str, ...]):
    """The path from the root of a catalog to one of its objects.

    Its text has the names joined by `$`, or by `.` if there is no `$`; the empty text and `$` are the root. A `$` in
    front only means that dots are part of names, as in `$v1.2`.
    """

    __slots__ = ()
    kind: ClassVar[str]
    _may_be_empty: ClassVar[bool] = True

    def __new__(cls, names: str | Iterable[str] = ()) -> Self:
        try:
            self = super().__new__(cls, split_names(names) if isinstance(names, str) else names)
        except TypeError as e:
            kind = type(names).__name__
            raise InvalidInputError(f"{cls.kind} id: must be a text or a sequence of names, not of type {kind}") from e
        if not self and not cls._may_be_empty:
            raise InvalidInputError(f"{cls.kind} id []: it needs at least the {cls.kind}'s own name")
        if len(self) > MAX_LEVELS:
            raise InvalidInputError(f"{cls.kind} id: has {len(self)} names; at most {MAX_LEVELS} are possible")
        elements: tuple[object, ...] = self
        for name in elements:
            if not isinstance(name, str):
                raise InvalidInputError(
                    f"{cls.kind} id: every name must be a non-empty string, not of type {type(name).__name__}"
                )
            if not name:
                raise InvalidInputError(f"{cls.kind} id {list(self)!r}: every name must be a non-empty string")
            if not name.isascii():
                _check_encodable(cls.kind, self, name)
        return self

    def __str__(self) -> str:
        """Returns the text of the id: the names joined by `$`, which is also in front of a single name with dots."""
        text = DELIMITER.join(self)
        return f"{DELIMITER}{text}" if not self or (len(self) == 1 and "." in text) else text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


class NamespaceId(Id):
    """The id of a namespace, of its names or of its text, such as "lake.sales"; the empty id is the root.

    Raises:
        InvalidInputError: A name is empty, is not a string, or cannot be written as UTF-8.
    """

    __slots__ = ()
    kind = "namespace"

    @property
    def parent(self) -> NamespaceId:
        """The parent namespace; the root is its own parent."""
        return NamespaceId(self[:-1])

    @property
    def name(self) -> str:
        """The last name; the empty string for the root."""
        return self[-1] if self else ""

    def child(self, name: str) -> NamespaceId:
        """Returns the id of a child namespace.

        Args:
            name: The name of the child within this namespace.
        """
        return NamespaceId((*self, name))

    def table(self, name: str) -> TableId:
        """Returns the id of a table in this namespace.

        Args:
            name: The name of the table within this namespace.
        """
        return TableId((*self, name))


class TableId(Id):
    """The id of a table, of its names or of its text, such as "sales.orders"; the last name is the table's own.

    Raises:
        InvalidInputError: There is no name, or a name is empty, is not a string, or cannot be written as UTF-8.
    """

    __slots__ = ()
    kind = "table"
    _may_be_empty = False

    @property
    def parent(self) -> NamespaceId:
        """The namespace of the table."""
        return NamespaceId(self[:-1])

    @property
    def name(self) -> str:
        """The table's own name."""
        return self[-1]


@dataclass(frozen=True, slots=True)
class Table:
    """A table as its catalog describes it: its location and how to read it."""

    id: TableId
    location: str
    """The URI or path of the Lance dataset, as for `lance.dataset`; `s3a://` and `s3n://` become `s3://`."""
    properties: Mapping[str, str] | None = None
    """The properties in the catalog; None if the catalog stores no properties."""
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    """Options for `lance.dataset`, including secrets; None if there are none."""
    managed_versioning: bool = False
    """Whether the catalog, not the storage, commits the table's versions."""
    version: int | None = None
    """The current version, if the catalog manages versions; else None."""
    schema: pa.Schema | None = None
    """The columns in the catalog; None if the catalog stores none."""
    is_owned: bool = field(default=False, repr=False, compare=False)
    """Whether the catalog owns the data, so that other tools delete it when they drop the table."""
    signs_remotely: bool = field(default=False, repr=False, compare=False)
    """Whether the catalog offers to sign requests to the storage, instead of credentials. Lance cannot use that."""
    registration: str | None = field(default=None, compare=False)
    """Identity of the registration; it changes if the name is removed and declared again.

    None if the catalog has no such identity. Not compared, because some listings do not have it.
    """

    def __post_init__(self) -> None:
        # Most tables come from responses.
        for value in (self.location, self.registration or "", *(self.properties or {}).values()):
            if not isinstance(value, str):
                raise TypeError(f"{type(value).__name__} instead of a string")
        object.__setattr__(self, "location", as_s3(self.location))


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing."""

    items: Sequence[T]
    token: str | None = None
    """The token of the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One table of a partitioned namespace."""

    table: Table
    values: Mapping[str, Any]
    """The values of the partition fields, by their ids; None is null."""
    spec_version: int
    """The version of the partition spec that the partition belongs to."""
    read_version: int | None = None
    """The version of the table to read; None for the latest one."""
    read_branch: str | None = None
    """The branch to read; None for main."""
    read_tag: str | None = None
    """The tag whose version is read; None for none."""

    @property
    def id(self) -> TableId:
        """The id of the table, for all operations on tables."""
        return self.table.id

    @property
    def location(self) -> str:
        """The location of the table."""
        return self.table.location

    @property
    def is_pinned(self) -> bool:
        """Whether another version than the latest one of main is read."""
        return (self.read_version, self.read_branch, self.read_tag) != (None, None, None)


def is_same(one: Table, other: Table) -> bool:
    """Returns whether two descriptions of a name belong to one registration, as far as the catalog shows it."""
    if not same_place(one.location, other.location):
        return False
    if one.registration is not None and other.registration is not None:
        return one.registration == other.registration
    return has(other, one.properties or {})


def same_place(one: str, other: str) -> bool:
    """Returns whether two locations are the same, whatever their spelling."""
    return one == other or place_of(one) == place_of(other)


def place_of(location: str) -> str:
    """Returns a text that is equal for all spellings of one location; symbolic links are not resolved."""
    if (path := local_path(location)) is not None:
        return f"file://{path}"
    scheme, _, rest = as_s3(location).partition("://")
    if scheme in _LOCAL:
        return f"file://{os.path.abspath(unquote(rest))}"
    return f"{scheme}://{unquote(rest).rstrip('/')}"


def as_s3(location: str) -> str:
    """Returns a location with `s3://` for `s3a://` and `s3n://`, which Hadoop writes, and which Lance cannot open."""
    return f"s3{location[3:]}" if location.startswith(("s3a://", "s3n://")) else location


def local_path(location: str) -> str | None:
    """Returns the path of a location in the local file system; None for other storages."""
    if location.startswith("file:"):
        return os.path.abspath(unquote(urlsplit(location).path))
    return None if "://" in location else os.path.abspath(location)


def has(table: Table, properties: Mapping[str, str]) -> bool:
    """Returns whether a table has these properties; further ones are ignored."""
    current = table.properties or {}
    return all(current.get(key) == value for key, value in properties.items())


def _check_encodable(kind: str, id: Id, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as e:
        raise InvalidInputError(f"{kind} id {list(id)!r}: {name!r} cannot be written as UTF-8") from e
