"""What changed in a catalog, and the tokens from which a watch goes on."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.calls.paging import decode_url_text
from lance_ns_async.model import NamespaceId, Table, TableId, place_of, same_place
from lance_ns_async.rendering import error_kind, printable

_FORMAT = 2
_DECODER = json.JSONDecoder()
MAX_TOKEN = 2**28
"""Maximum size of the content of a token in bytes, enough for a million tables."""
MAX_TABLES = 1_000_000
"""Maximum number of tables in a token."""

_SHORT, _LONGEST = 1 << 10, 64 << 10
"""Numbers of characters of the description of one table in a token: usually, and at most."""


class ChangeKind(StrEnum):
    """The kind of a change."""

    CREATED = "created"
    """A table was declared, created or registered."""
    DROPPED = "dropped"
    """A table was dropped or deregistered, or is a table of another format now."""
    RENAMED = "renamed"
    """A table has another id and the same location."""
    REPLACED = "replaced"
    """The id belongs to another table: it has another location, was registered anew, or has an older version."""
    VERSION = "version"
    """A table has new versions."""
    UNREADABLE = "unreadable"
    """A table or namespace could not be read; what happens to it is told as soon as it can be read again."""


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A table as a watch has seen it."""

    location: str
    registration: str | None = None
    version: int | None = None
    """The latest version; None if there is none, or if versions are not watched."""

    def is_of(self, table: Table) -> bool:
        """Returns whether a description is of the same registration, as far as the catalog shows it."""
        return same_place(self.location, table.location) and (
            self.registration is None or table.registration is None or self.registration == table.registration
        )


@dataclass(frozen=True, slots=True)
class CatalogState:
    """The selected tables of a catalog at one time."""

    of: Sequence[str]
    """The catalog and the selection, which a token must have, too."""
    tables: Mapping[TableId, SeenTable] = field(default_factory=dict)

    def after(self, observations: Iterable[Observation]) -> CatalogState:
        """Returns the state after changes."""
        tables = dict(self.tables)
        for change, seen in observations:
            if change.old_id is not None:
                del tables[change.old_id]
            if change.kind is ChangeKind.DROPPED:
                del tables[TableId(change.id)]
            elif seen is not None:
                tables[TableId(change.id)] = seen
        return CatalogState(self.of, tables)

    def with_at_the_end(self, ids: Collection[TableId]) -> CatalogState:
        """Returns the same state with some tables at the end."""
        others = {id: seen for id, seen in self.tables.items() if id not in ids}
        return replace(self, tables={**others, **self.tables})

    def token(self) -> str:
        """Returns the text from which `read` makes an equal state."""
        tables = [[list(id), it.location, it.registration, it.version] for id, it in self.tables.items()]
        content = json.dumps([_FORMAT, list(self.of), tables], separators=(",", ":"))
        return base64.urlsafe_b64encode(zlib.compress(content.encode(), 1)).decode()

    @classmethod
    def read(
        cls, token: str, of: Sequence[str], *, max_bytes: int = MAX_TOKEN, max_tables: int = MAX_TABLES
    ) -> CatalogState:
        """Returns the state of a token.

        Args:
            token: The token.
            of: The catalog and the selection, which the token must have.
            max_bytes: Maximum size of the content of the token after decompression.
            max_tables: Maximum number of tables in it.

        Raises:
            InvalidInputError: The text is no token of a watch, is one of another catalog or selection, or is too large.
        """
        invalid = partial(
            InvalidInputError, "since: it is not the token of a change, or was cut off; begin anew without it"
        )
        too_many = InvalidInputError(f"since: has more than {max_tables} tables; watch fewer tables")
        try:
            unpacker = zlib.decompressobj()
            # A file with a token may end with a new line.
            content = unpacker.decompress(decode_url_text(token.strip()), max_bytes)
            if not unpacker.eof:
                raise invalid()
            # All at once, the parser would hold up the other threads for a second.
            text = content.decode()
            # Each table has one; it takes a second to read 100,000 of them.
            if text.count("[[") > max_tables + 1:
                raise too_many
            format, place = _decode(text, 1)
            its_own, place = _decode(text, place + 1, 12 * sum(map(len, of)))
            if format != _FORMAT:
                raise invalid()
            catalog, *selection = _texts(its_own)
            seen: dict[TableId, SeenTable] = {}
            place += 1
            is_end = text[place + 1] == "]"
            for _ in range(max_tables):
                if is_end:
                    break
                (names, *values), place = _decode(text, place + 1)
                seen[TableId(_texts(names))] = _seen_table(*values)
                is_end = text[place] == "]"
            if not is_end:
                raise too_many
        except (zlib.error, ValueError, TypeError, IndexError, RecursionError) as e:
            raise invalid() from e
        if [catalog, *selection] != list(of):
            raise InvalidInputError(
                f"since: it is the token of a watch of {', '.join(selection)} in {catalog}; use one of a watch of the "
                "same tables, or begin anew without it"
            )
        return cls(of, seen)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a catalog that a watch has seen."""

    kind: ChangeKind
    id: TableId | NamespaceId
    """The table; for `unreadable`, it may also be a namespace."""
    location: str | None = None
    """The location of the table, for `dropped` the former one; None for `unreadable`."""
    version: int | None = None
    """The latest version; None if nothing was written to the table, or if versions are not watched."""
    old_version: int | None = None
    """For `version`, the last version that was seen before."""
    old_id: TableId | None = None
    """For `renamed`, the former id."""
    error: LanceNamespaceError | None = None
    """For `unreadable`, the reason."""
    is_last: bool = field(default=False, compare=False)
    """Whether nothing else was seen by the same look: a good time to store the token."""
    _states: _States | None = field(default=None, repr=False, compare=False)
    _index: int = field(default=0, repr=False, compare=False)

    @property
    def token(self) -> str:
        """The token from which a watch goes on after this change: pass it as `since`.

        It contains the ids and locations of all watched tables, about 60 bytes for each, and is computed at each use.
        """
        assert self._states is not None
        return self._states.after(self._index).token()

    def to_dict(self) -> dict[str, Any]:
        """Returns the change as values for JSON, without its token."""
        values = {
            "change": self.kind.value,
            "id": list(self.id),
            "location": self.location,
            "version": self.version,
            "old_version": self.old_version,
            "old_id": None if self.old_id is None else list(self.old_id),
            "error": None if self.error is None else {"kind": error_kind(self.error), "message": str(self.error)},
        }
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        """Returns a line for people."""
        details = [
            f"was {self.old_id}" if self.old_id is not None else None,
            f"version {self.version}" if self.version is not None else None,
            self.location if self.kind is not ChangeKind.VERSION else None,
            None if self.error is None else f"{error_kind(self.error)}: {self.error}",
        ]
        return printable("  ".join([f"{self.kind.value:<10}", str(self.id) or "(root)", *filter(None, details)]))


def _decode(text: str, place: int, most: int = 0) -> tuple[Any, int]:
    """Returns the JSON value at a place in a text, and the place after it; its length is at most `most`."""
    try:
        value, length = _DECODER.raw_decode(text[place : place + _SHORT])
    except ValueError:
        value, length = _DECODER.raw_decode(text[place : place + max(most, _LONGEST)])
    return value, place + length


def _texts(values: object) -> list[str]:
    if not isinstance(values, list):
        raise TypeError("it is no list")
    return [*map(_text, values)]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("it is no string")
    return value


def _seen_table(location: object, registration: object, version: object) -> SeenTable:
    """Returns the table of a token, which anyone may have written."""
    # Some spellings are no URI.
    place_of(_text(location))
    if not (isinstance(registration, str | None) and isinstance(version, int | None)):
        raise TypeError("a value has another type")
    return SeenTable(_text(location), registration, version)


Observation: TypeAlias = tuple[Change, SeenTable | None]
"""A change, and the table as it was seen; None if it was dropped or could not be read."""


@dataclass(frozen=True, slots=True)
class _States:
    """The states before, between and after the changes of one look."""

    before: CatalogState
    observations: Sequence[Observation]
    last: CatalogState

    def after(self, index: int) -> CatalogState:
        """Returns the state after the change at an index."""
        if index == len(self.observations) - 1:
            return self.last
        return self.before.after(self.observations[: index + 1])


def with_tokens(observations: Sequence[Observation], before: CatalogState, last: CatalogState) -> Sequence[Change]:
    """Returns the changes of one look with what their tokens need."""
    states = _States(before, observations, last)
    return [
        replace(change, is_last=index == len(observations) - 1, _states=states, _index=index)
        for index, (change, _) in enumerate(observations)
    ]
