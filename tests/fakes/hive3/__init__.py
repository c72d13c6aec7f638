"""A Hive Metastore in memory: 3.1.3 with the state of its own schema scripts, or other versions by options."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from tests.fakes.hive3 import objects
from tests.fakes.thrift import Call, HangUp, ThriftServer, application_exception

from ..thrift_wire import REPLY, STRING, STRUCT, Message, Struct, Typed
from .catalog import HiveCatalog
from .tables import Filters, HiveTables

LANCE: Mapping[str, str] = {"table_type": "lance", "EXTERNAL": "TRUE"}  # The parameters of an external Lance table


class FakeHive(ThriftServer):
    """A metastore; its content and its recorded calls survive a restart. It creates and deletes real directories like
    real servers, those of its warehouse in `directory`; None means a temporary one, which is removed at the end of the
    context."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        version: Literal["2.3.9", "3.1.3", "4.0.1"] = "3.1.3",
        filters: Filters = "clob",
        schemes: Collection[str] = (),
        framed: bool = False,
        require_plain_sasl: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Creates a server; `schemes` are the file systems that it supports besides local files, such as `{"s3a"}`.
        2.3.9 is 3.1.3 without the methods for catalogs."""
        super().__init__(framed=framed, plain_sasl=require_plain_sasl, tls=tls)
        self._stack = ExitStack()
        base = directory or Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lance-ns-hive-")))
        self.warehouse = base.resolve() / "warehouse"
        self.warehouse.mkdir(parents=True, exist_ok=True)
        self.compares = version.startswith("4")  # Whether an alteration may name a parameter that the table must have
        self._modern = version.startswith("4")
        self._sasl = require_plain_sasl is not None
        self._catalog = HiveCatalog(f"file:{self.warehouse}", objects.Places(schemes), modern=self._modern)
        self._tables = HiveTables(self._catalog, filters)
        self._heard: set[int] = set()
        self.lacks = {method for method in objects.METHODS if version == "2.3.9" and "catalog" in method}
        """Methods that are unknown to it."""

    def __enter__(self) -> Self:
        self._stack.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        self._stack.close()

    def add_catalog(self, name: str, *, location: str | None = None) -> None:
        with self._lock:
            self._catalog.plant_catalog(name, location or f"file:{self.warehouse}/{name.lower()}")

    def add_database(self, catalog: str, name: str, *, parameters: Mapping[str, str] | None = None) -> None:
        with self._lock:
            self._catalog.plant_database(catalog, name, parameters or {})

    def add_table(
        self,
        catalog: str,
        database: str,
        name: str,
        *,
        parameters: Mapping[str, str] = LANCE,
        location: str | None = None,
        table_type: str = objects.EXTERNAL,
    ) -> None:
        """Adds a table to a database; values are returned unchanged. Creates no directory."""
        with self._lock:
            self._tables.add_other_table(catalog, database, name, parameters, location, table_type)

    def replace_later(self, catalog: str, database: str, name: str, location: str) -> None:
        """Replaces a table as if another client had dropped it, and created it again in a later second."""
        with self._lock:
            old = self._catalog.database(catalog, database).tables.pop(name)
            self._tables.add_other_table(catalog, database, name, LANCE, location, objects.EXTERNAL)
            self._catalog.database(catalog, database).tables[name].created = old.created + 1

    def add_function(self, catalog: str, database: str, name: str) -> None:
        with self._lock:
            self._catalog.database(catalog, database).functions.add(name)

    def before_commit(self, hook: Callable[[], None]) -> None:
        """Sets a callback between the creation of a new table's folder and the commit of the table."""
        self._tables.before_commit = hook

    def handle(self, call: Call) -> Message:
        reply = Message(REPLY, call.method, call.sequence)
        first = call.connection not in self._heard
        self._heard.add(call.connection)
        if call.method not in objects.METHODS or call.method in self.lacks:
            message = f"Invalid method name: '{call.method}'"
            return application_exception(reply, objects.APPLICATION_TYPES["unknown method"], message)
        try:
            result = self._greet(call, first) if call.method == "set_ugi" else self._result(call)
        except objects.Thrown as e:
            return self.thrown(reply, e.name, str(e))
        except objects.Unforeseen:
            if not self._modern:
                raise HangUp from None
            message = f"Internal error processing {call.method}"
            return application_exception(reply, objects.APPLICATION_TYPES["internal"], message)
        return replace(reply, body=Struct({} if result is None else {0: result}))

    def thrown(self, reply: Message, exception: str, message: str) -> Message:
        """Returns a reply with an exception; raises ValueError if the method does not declare it."""
        if exception == "TApplicationException":
            return application_exception(reply, objects.APPLICATION_TYPES["internal"], message)
        return replace(reply, body=Struct({objects.METHODS[reply.name].index(exception) + 1: Struct({1: message})}))

    def _greet(self, call: Call, first: bool) -> Any:
        user, groups = call.arguments.get(1), call.arguments.get(2) or []
        if self._sasl:
            return Typed(STRING, [*groups, user])
        # The server expects this call only as the first message of a connection.
        if not first or user is None:
            raise HangUp
        return Typed(STRING, groups)

    def _result(self, call: Call) -> Any:
        catalogs, tables, arguments = self._catalog, self._tables, call.arguments
        request: Any = arguments.get(1)
        match call.method:
            case "getStatus":
                return 2  # alive
            case "get_catalogs":
                return Struct({1: Typed(STRING, sorted(catalogs.catalogs))})
            case "get_catalog":
                return Struct({1: catalogs.catalog(request[1]).struct(modern=self._modern)})
            case "create_catalog":
                return catalogs.create_catalog(request[1])
            case "alter_catalog":
                return catalogs.alter_catalog(request[1], request[2])
            case "drop_catalog":
                return catalogs.drop_catalog(request[1])
            case "create_database":
                return catalogs.create_database(request)
            case "get_database":
                return self._database(request)
            case "get_databases":
                return Typed(STRING, catalogs.databases(request))
            case "drop_database":
                delete_data, cascade = bool(arguments.get(2)), bool(arguments.get(3))
                return catalogs.drop_database(request, delete_data=delete_data, cascade=cascade)
            case "create_table":
                return tables.create(request)
            case "get_all_tables":
                return Typed(STRING, tables.names(request))
            case "get_functions":
                return Typed(STRING, catalogs.functions(request))
            case "get_table_req":
                return Struct({1: tables.get(request)})
            case "get_table_objects_by_name_req":
                return Struct({1: Typed(STRUCT, tables.get_many(request))})
            case "get_table_names_by_filter":
                return Typed(STRING, tables.filtered(request, arguments[2], arguments.get(3, 0)))
            case "alter_table" | "alter_table_with_environment_context":
                context = (arguments.get(4) or Struct()).get(1) or {}
                return tables.alter(request, arguments[2], arguments[3], context)
            case "drop_table":
                return tables.drop(request, arguments[2], delete_data=bool(arguments.get(3)))
        raise NotImplementedError(call.method)

    def _database(self, text: str) -> Struct:
        catalog, name = objects.address(text)
        return self._catalog.database(catalog, name).struct(objects.folded(catalog), modern=self._modern)
