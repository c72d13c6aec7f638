"""The event log of a metastore in memory, with the events that `DbNotificationListener` records."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from ..thrift_calls import Call
from ..thrift_wire import I64, Struct, Typed
from .catalog import HiveCatalog, now
from .errors import CONFIG_SECURITY, Denied, Thrown
from .places import DEFAULT, HIVE, address, folded

EventAccess = Literal["recorded", "unrecorded", "denied"]
"""Whether changes are recorded, or not, or recorded but not readable by clients."""

LISTENER = "org.apache.hive.hcatalog.listener.DbNotificationListener"
_LISTENERS = "metastore.transactional.event.listeners"

Name = tuple[str, str, str | None]
"""Catalog, database and table as an event names them."""


class EventLog:
    """Records the successful changes of a server."""

    def __init__(self, catalog: HiveCatalog, version: str, access: EventAccess) -> None:
        self._catalog = catalog
        self._is_first = version.startswith("2")
        self._compresses = version.startswith("4")
        self.access: EventAccess = access
        self.listeners = f"com.example.Audit, {LISTENER}"
        """The value of the setting if changes are recorded."""
        self.events: list[Struct] = []
        """The events that are not yet cleaned, oldest first."""
        self._last = 0

    @property
    def current(self) -> int:
        """The number of the newest event, also of a cleaned one."""
        self._check_access()
        return self._last

    def after(self, request: Struct) -> list[Struct]:
        """Returns the requested events, by their numbers."""
        self._check_access()
        limit = request.get(2) or 0
        found = [event for event in self.events if event[1].value > request[1]]
        found.sort(key=lambda event: int(event[1].value))
        return found[:limit] if limit > 0 else found

    def setting(self, name: str | None, default: str | None) -> str | None:
        """Returns the value of a setting of the server."""
        if name is None:
            return default
        if not re.match("hive|hdfs|mapred" if self._is_first else "hive|hdfs|mapred|metastore", name):
            raise Thrown(CONFIG_SECURITY, f"For security reasons, the config key {name} cannot be accessed")
        if name.removeprefix("hive.") == _LISTENERS:
            return "" if self.access == "unrecorded" else self.listeners
        return default

    def add(
        self, type: str, name: Name, content: Mapping[str, Any] | None = None, *, number: int | None = None
    ) -> None:
        """Records an event.

        Args:
            content: The message's content besides the names.
            number: The event's number; None for the next one.
        """
        catalog, database, table = name
        message = {"server": "", "db": database, **({"table": table} if table else {}), **(content or {})}
        text = json.dumps(message)
        if self._compresses:
            text = base64.b64encode(gzip.compress(text.encode())).decode()
        self._last = self._last + 1 if number is None else max(number, self._last)
        self.events.append(
            Struct(
                {
                    1: Typed(I64, self._last if number is None else number),
                    2: now(),
                    3: type,
                    4: database,
                    5: table,
                    6: text,
                    7: "gzip(json-2.0)" if self._compresses else "json-0.2",
                    8: None if self._is_first else catalog,
                }
            )
        )

    def clean(self, keep: int = 0) -> None:
        """Removes all events except the newest ones."""
        self.events = self.events[len(self.events) - keep :]

    def reset(self) -> None:
        """Removes all events and begins again at the first position, as with a new database."""
        self.events.clear()
        self._last = 0

    def go_back(self, number: int) -> None:
        """Makes this the number of the newest event, as concurrent changes may."""
        self._last = number

    @contextmanager
    def record(self, call: Call) -> Iterator[None]:
        """Records the change of a call if it succeeds."""
        dropped = self._dropped(call)
        yield
        if self.access == "unrecorded":
            return
        arguments = call.arguments
        match call.method:
            case "create_catalog":
                self.add("CREATE_DATABASE", (arguments[1][1][1], DEFAULT, None))
            case "create_database":
                self.add("CREATE_DATABASE", (arguments[1].get(8) or HIVE, arguments[1][1], None))
            case "alter_database" if not self._is_first:
                self.add("ALTER_DATABASE", _name(arguments[1]))
            case "drop_catalog" | "drop_database":
                for name in dropped:
                    self.add("DROP_TABLE" if name[2] else "DROP_DATABASE", name)
            case "create_table":
                table = arguments[1]
                self.add("CREATE_TABLE", (table.get(17) or HIVE, table[2], table[1]))
            case "alter_table" | "alter_table_with_environment_context":
                catalog, old, _ = _name(arguments[1])
                table = arguments[3]
                former = {"db": old, "table": folded(arguments[2])}
                self.add("ALTER_TABLE", (table.get(17) or catalog, table[2], table[1]), former)
            case "drop_table":
                self.add("DROP_TABLE", _name(arguments[1], arguments[2]))

    def _dropped(self, call: Call) -> list[Name]:
        """Returns the tables and the database that a call would drop: a database, or a catalog with its `default`."""
        name: str | None
        match call.method:
            case "drop_catalog":
                catalog, name = (call.arguments.get(1) or {}).get(1) or "", DEFAULT
            case "drop_database":
                catalog, name = address(call.arguments.get(1))
            case _:
                return []
        database = self._catalog.find_database(catalog, name or "")
        if database is None:
            return []
        return [(folded(catalog), database.name, table) for table in (*sorted(database.tables), None)]

    def _check_access(self) -> None:
        if self.access == "denied":
            raise Denied


def _name(text: str, table: str | None = None) -> Name:
    catalog, database = address(text)
    return folded(catalog), folded(database or ""), table and folded(table)
