"""The event log of a Hive Metastore, in which `DbNotificationListener` records changes. No function here makes a call.

Source: the IDL and `DbNotificationListener` of Hive 2.3.9, 3.1.3 and 4.0.1.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.hive3.responses import optional_text
from lance_ns_async.backends.shared import response_checks
from lance_ns_async.model import NamespaceId, TableId

LISTENERS = "hive.metastore.transactional.event.listeners"
"""The server's setting of the classes that record events in the transaction of the change; all versions know it."""

_LISTENER = "org.apache.hive.hcatalog.listener.DbNotificationListener"
_DEFAULT_CATALOG = "hive"
_ALTER_TABLE = "ALTER_TABLE"

_TABLE_TYPES = frozenset(  # Types of events about one table.
    {
        _ALTER_TABLE,
        "ACID_WRITE_EVENT",
        "ADD_CHECKCONSTRAINT",
        "ADD_DEFAULTCONSTRAINT",
        "ADD_FOREIGNKEY",
        "ADD_NOTNULLCONSTRAINT",
        "ADD_PARTITION",
        "ADD_PRIMARYKEY",
        "ADD_UNIQUECONSTRAINT",
        "ALTER_PARTITION",
        "BATCH_ACID_WRITE_EVENT",
        "CREATE_TABLE",
        "DELETE_PART_COL_STAT_EVENT",
        "DELETE_TBL_COL_STAT_EVENT",
        "DROP_CONSTRAINT",
        "DROP_PARTITION",
        "DROP_TABLE",
        "INSERT",
        "UPDATE_PART_COL_STAT_EVENT",
        "UPDATE_TBL_COL_STAT_EVENT",
    }
)

_OTHER_TYPES = frozenset(
    {"ABORT_TXN", "ALLOC_WRITE_ID_EVENT", "COMMIT_TXN", "CREATE_FUNCTION", "DROP_FUNCTION", "OPEN_TXN"}
)
"""Types of events that change no registration. Hive 3.1 records those of transactions with the database `null`."""

_POSITION = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")  # Numbers that fit into 64 bits.

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024  # Maximum number of bytes of a decompressed message.

_GZIP = 31  # The argument of zlib for data with a gzip header.


@dataclass(frozen=True, slots=True)
class HiveEvent:
    """A change that a metastore has recorded."""

    number: int
    """Numbers have no gaps, except where the log was cleaned; several events may have the same one."""
    type: str
    catalog: str | None
    """None before Hive 3, and for events of transactions."""
    database: str | None
    table: str | None
    """The name after the change, as the client of the change has spelled it."""
    former: tuple[str, str] | None = None
    """Database and table before the change; None if the message does not contain them."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the log, after the events of a number."""

    number: int
    count: int
    """How many events of this number the log had."""

    def __str__(self) -> str:
        return f"{self.number}:{self.count}"

    @classmethod
    def parse(cls, position: str) -> Position:
        """Returns the position of a text."""
        if (parts := _POSITION.fullmatch(position)) is None:
            raise InvalidInputError(
                f"position {position[:40]!r} is not one of a metastore's event log; give None to start"
            )
        return cls(int(parts[1]), int(parts[2]))


def is_recorded(listeners: str) -> bool:
    """Returns whether the server records changes, by its setting `LISTENERS`.

    The number of the newest event does not show it: without a listener, it never changes.
    """
    return _LISTENER in (name.strip() for name in listeners.split(","))


def current_number(result: Any) -> int:
    """Returns the number of the newest event in a response."""
    return _number(result[1])


def events(result: Any) -> list[HiveEvent]:
    """Returns the events in a response."""
    return [_event(fields) for fields in result[1]]


def subjects(event: HiveEvent, *, has_catalogs: bool) -> Collection[NamespaceId | TableId] | None:
    """Returns the tables and databases that an event may have changed, in lower case as metastores store names.

    Args:
        has_catalogs: Whether ids begin with the catalog. Otherwise events of all catalogs count, because a server may
            be configured to show any of them as its default.

    Returns:
        The ids; None if the change may have affected a table that cannot be identified.
    """
    if event.type in _OTHER_TYPES or not event.database:
        return ()
    catalog = [event.catalog or _DEFAULT_CATALOG] if has_catalogs else []
    database = NamespaceId(name.lower() for name in (*catalog, event.database))
    if event.type not in _TABLE_TYPES or not event.table:
        return (database,)
    table = database.table(event.table.lower())
    if event.type != _ALTER_TABLE:
        return (table,)
    if event.former is None:
        # After a rename from another database, the former id is in the message alone.
        return None
    return {table, TableId(name.lower() for name in (*catalog, *event.former))}


def _event(fields: Any) -> HiveEvent:
    type = response_checks.text(fields[3])
    return HiveEvent(
        number=_number(fields[1]),
        type=type,
        catalog=_name(fields, 8),
        database=_name(fields, 4),
        table=_name(fields, 5),
        former=_former(response_checks.text(fields[6])) if type == _ALTER_TABLE else None,
    )


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{type(value).__name__} instead of a number")
    return value


def _name(fields: Any, field: int) -> str | None:
    """Returns a name; None if it is missing or blank, as that of the table in some events of Hive 3.1."""
    return (optional_text(fields, field) or "").strip() or None


def _former(message: str) -> tuple[str, str] | None:
    """Returns database and table before the change in a message of ALTER_TABLE; None if it cannot be decoded.

    Messages are JSON (`json-0.2`, `json-2.0`), by default compressed since Hive 4 (`gzip(json-2.0)`).
    """
    try:
        content = json.loads(message if message.lstrip().startswith("{") else _decompressed(message))
    except (ValueError, zlib.error, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    names: Sequence[Any] = [content.get(key) for key in ("db", "table")]
    match names:
        case [str(database), str(table)] if database.strip() and table.strip():
            return database.strip(), table.strip()
    return None


def _decompressed(message: str) -> bytes:
    """Returns the content of a message that is compressed with gzip and encoded in Base64."""
    decompressor = zlib.decompressobj(_GZIP)
    content = decompressor.decompress(base64.b64decode(message, validate=True), _MAX_MESSAGE_BYTES)
    if not decompressor.eof:
        raise ValueError("the message is incomplete or too long")
    return content
