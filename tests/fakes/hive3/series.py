"""One series of calls for all metastores, with its replies in a form that can be compared between servers."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.fakes import thrift_wire
from tests.fakes.hive3 import LANCE
from tests.fakes.hive3.objects import METHODS
from tests.fakes.thrift import COMPLETE, OK, START, sasl_message


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: `ok`, the name of an exception, or `cut`."""

    kind: str
    value: Any = None  # The result, or the message of the exception


class RawHive:
    """Makes calls over one connection, and over a new one after it was cut."""

    def __init__(
        self,
        uri: str,
        *,
        framed: bool = False,
        plain_sasl: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = uri.removeprefix("thrift://").rpartition(":")
        self._address = (host, int(port))
        self._framed = framed or plain_sasl is not None
        self._plain_sasl = plain_sasl
        self._tls = tls
        self._sequence = 0
        self._wire: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def ask(self, method: str, *arguments: Any) -> Outcome:
        """Calls a method; arguments are numbered from 1, and None omits one."""
        try:
            reply = self.exchange(method, *arguments)
        except (EOFError, ConnectionError):
            self.close()
            return Outcome("cut")
        assert (reply.name, reply.sequence) == (method, self._sequence), reply
        if reply.kind == thrift_wire.EXCEPTION:
            return Outcome("TApplicationException", (reply.body[2], reply.body[1]))
        for field, value in reply.body.items():
            return Outcome(METHODS[method][field - 1], value.get(1)) if field else Outcome("ok", value)
        return Outcome("ok")

    def do(self, method: str, *arguments: Any) -> Any:
        """Calls a method and returns its result; fails if there is none."""
        outcome = self.ask(method, *arguments)
        assert outcome.kind == "ok", outcome
        return outcome.value

    def exchange(self, method: str, *arguments: Any) -> thrift_wire.Message:
        """Returns the reply without interpretation."""
        self.send(method, *arguments)
        return self.receive()

    def send(self, method: str, *arguments: Any) -> None:
        self._sequence += 1
        numbered = thrift_wire.Struct(dict(enumerate(arguments, 1)))
        data = thrift_wire.Message(thrift_wire.CALL, method, self._sequence, numbered).encoded()
        self.connected.sendall(thrift_wire.frame(data) if self._framed else data)

    def receive(self) -> thrift_wire.Message:
        if not self._framed:
            return thrift_wire.receive_message(self.connected)
        (size,) = struct.unpack(">I", self.read(4))
        return thrift_wire.decoded(self.read(size))

    def read(self, size: int) -> bytes:
        """Reads a number of bytes; raises EOFError if the connection ends before."""
        data = b""
        while len(data) < size:
            more = self.connected.recv(size - len(data))
            if not more:
                raise EOFError("the connection ended")
            data += more
        return data

    @property
    def connected(self) -> socket.socket:
        if self._wire is None:
            wire = socket.create_connection(self._address, timeout=60.0)
            self._wire = self._tls.wrap_socket(wire, server_hostname=self._address[0]) if self._tls else wire
            if self._plain_sasl is not None:
                self._log_in(*self._plain_sasl)
        return self._wire

    def _log_in(self, user: str, password: str) -> None:
        assert self._wire is not None
        self._wire.sendall(sasl_message(START, b"PLAIN") + sasl_message(OK, f"\0{user}\0{password}".encode()))
        status, size = struct.unpack(">BI", self.read(5))
        message = self.read(size)
        if status != COMPLETE:
            raise PermissionError(message.decode())


def catalog(name: str | None, location: str | None = None, description: str | None = None) -> thrift_wire.Struct:
    return thrift_wire.Struct({1: thrift_wire.Struct({1: name, 2: description, 3: location})})


def database(
    catalog: str | None,
    name: str | None,
    *,
    description: str | None = None,
    location: str | None = None,
    parameters: Mapping[str, str] | None = None,
    owner: tuple[str | None, int | None] = (None, None),
) -> thrift_wire.Struct:
    fields = {2: description, 3: location, 4: dict(parameters) if parameters is not None else None}
    return thrift_wire.Struct({1: name, **fields, 6: owner[0], 7: owner[1], 8: catalog})


def table(
    catalog: str | None,
    database: str,
    name: str,
    *,
    location: str | None = None,
    parameters: Mapping[str, str] = LANCE,
    type: str | None = "EXTERNAL_TABLE",
    storage: thrift_wire.Struct | None = None,
) -> thrift_wire.Struct:
    """Returns a table as it is sent; `storage` replaces the other arguments about its storage."""
    none = thrift_wire.Typed(thrift_wire.STRUCT, [])
    usual = thrift_wire.Struct({1: none, 2: location, 7: thrift_wire.Struct()})
    described = usual if storage is None else storage
    fields = {1: name, 2: database, 7: described, 8: none, 9: dict(parameters), 12: type, 17: catalog}
    return thrift_wire.Struct(fields)


def named(catalog: str | None, database: str, name: str | Sequence[str]) -> thrift_wire.Struct:
    """Returns the request for a table, or for tables."""
    return thrift_wire.Struct({1: database, 2: name, 4: catalog})


LANCE_FILTER = 'hive_filter_field_params__table_type like "(?i)lance"'
EVERY = thrift_wire.Typed(thrift_wire.I16, -1)
_LANCE = {"table_type": "lance", "EXTERNAL": "TRUE", "DO_NOT_UPDATE_STATS": "true"}
_MANAGED = {"table_type": "lance"}
_TIMES = re.compile(r"\b1[0-9]{9}\b")
_LISTED_IN_NO_ORDER = {"get_table_names_by_filter", "get_table_objects_by_name_req"}
Answer = tuple[str, str, Any]  # The call, its outcome, and its result or message


class Series:
    """Sends the calls to one server, with all locations below a separate folder."""

    def __init__(self, client: RawHive, folder: Path, warehouse: Path) -> None:
        self._client = client
        self._folder = folder.resolve()
        self._warehouse = str(warehouse)
        self.answers: list[Answer] = []

    def run(self) -> list[Answer]:
        for part in (self.catalogs, self.databases, self.tables, self.filters, self.bulk, self.changes, self.drops):
            part()
        return self.answers

    def catalogs(self) -> None:
        self._ask("getStatus")
        self._ask("get_catalogs")
        for name in ("HIVE", "nowhere"):
            self._ask("get_catalog", thrift_wire.Struct({1: name}))
        for catalog_name, place in (("c-c", "c"), ("Cat", "cat/"), ("CAT", "again")):
            self._ask("create_catalog", catalog(catalog_name, self._at(place), "Désc"))
        for location in ("some/where", "s3://bucket/x", "s3a://bucket/x"):
            self._ask("create_catalog", catalog("c", location))
        self._ask("get_catalogs")
        self._ask("get_catalog", thrift_wire.Struct({1: "cat"}))
        for name, new, moved in (
            ("cat", "cat", self._at("cat")),
            ("cat", "cat", None),
            ("cat", "other", None),
            ("nowhere", "nowhere", self._at("cat")),
            ("CAT", "Cat", None),
        ):
            self._ask(
                "alter_catalog",
                thrift_wire.Struct({1: name, 2: thrift_wire.Struct({1: new, 2: f"now {new}", 3: moved})}),
            )
        self._ask("alter_catalog", thrift_wire.Struct({1: "cat", 2: thrift_wire.Struct({1: "cat"})}))
        self._ask("get_catalog", thrift_wire.Struct({1: "cat"}))
        self._ask("create_catalog", catalog("c" * 257, self._at("c")), loosely=True)
        self._ask("create_catalog", catalog("c", self._at("c"), "d" * 4001), loosely=True)

    def databases(self) -> None:
        described = database("cat", "Db1", description="hello", parameters={"a": "1"}, owner=("me", 1))
        self._ask("create_database", described)
        for text in ("@cat#db1", "@CAT#DB1", "@cat#default", "default", "@cat#nope", "@nowhere#db1", "nope"):
            self._ask("get_database", text)
        for catalog_name, name in (("cat", "DB1"), ("nowhere", "db1"), ("cat", "dé")):
            self._ask("create_database", database(catalog_name, name))
        self._ask("create_database", database(None, "inhive"))
        self._ask("get_database", "inhive")
        for number, location in enumerate((self._at("else/db2/"), self._path("else/db 3%20x"), "rel/x", "s3://b/x")):
            self._ask("create_database", database("cat", f"db_{number}", location=location))
            self._ask("get_database", f"@cat#db_{number}")
        (self._folder / "file").write_text("not a folder")
        self._ask("create_database", database("cat", "db4", location=self._at("file/db4")))
        self._ask("create_database", database("cat", "db5", owner=(None, 2)))
        self._ask("get_database", "@cat#db5")
        for parameters in ({"k" * 181: "v"}, {"k": "v" * 4001}):
            self._ask("create_database", database("cat", "long", parameters=parameters))
        self._ask("create_database", database("cat", "long", description="d" * 4001))
        self._ask("create_database", database("cat", "d" * 129), loosely=True)
        self._ask("create_database", database("cat", "edge", parameters={"k" * 180: "v" * 4000, "": "", "é": "ü"}))
        self._ask("get_database", "@cat#edge")
        for pattern in ("@cat#*", "*", "@nowhere#*"):
            self._ask("get_databases", pattern)

    def tables(self) -> None:
        self._ask("create_database", database("cat", "d"))
        for name, parameters, location in (
            ("T1", _LANCE, "t/t1/"),
            ("plain", _LANCE, None),
            ("managed", _MANAGED, None),
            ("elsewhere", {"table_type": "LANCE"}, "t/elsewhere"),
            ("folded", {"table_type": "Lance", "EXTERNAL": "true"}, "t/folded"),
            ("kept", {"table_type": "lance", "EXTERNAL": "false"}, "t/kept"),
            ("iceberg", {"table_type": "ICEBERG", "EXTERNAL": "TRUE"}, "t/iceberg"),
            ("none", {}, None),
        ):
            self._ask("create_table", table("cat", "d", name, parameters=parameters, location=self._at(location)))
            self._ask("get_table_req", named("CAT", "D", name.upper()))
        self._write("t/full")
        for name, parameters in (("counted", {"EXTERNAL": "TRUE"}), ("uncounted", _LANCE)):
            self._ask("create_table", table("cat", "d", name, parameters=parameters, location=self._at("t/full")))
            self._ask("get_table_req", named("cat", "d", name))
        self._ask("create_table", table("cat", "d", "view", parameters={"x": "y"}, type="VIRTUAL_VIEW"))
        self._ask("get_table_req", named("cat", "d", "view"))
        self._ask("create_table", table(None, "default", "inhive", location=self._at("t/inhive")))
        self._ask("get_table_req", named(None, "default", "inhive"))
        for request in (
            *(named("cat", "d", "nope"), named("cat", "nope", "t1"), named("nowhere", "d", "t1")),
            named(None, "d", "t1"),
        ):
            self._ask("get_table_req", request)
        for refused in (
            *(table("cat", "d", "t1"), table("cat", "nope", "t"), table("nowhere", "d", "t")),
            *(table("cat", "d", ""), table("cat", "d", "é")),
            table("cat", "d", "t", storage=thrift_wire.Struct({1: thrift_wire.Typed(thrift_wire.STRUCT, [])})),
        ):
            self._ask("create_table", refused)
        self._ask("create_table", table("cat", "d", "n" * 257, location=self._at("t/n")), loosely=True)
        self._ask("create_table", table("cat", "d", "t", parameters={"k" * 257: "v"}))
        for location in ("a/b", "s3://a/b", "s3a://a/b", "gs://a/b", "abfss://a@b/c"):
            self._ask("create_table", table("cat", "d", "t", location=location))
        for place in ("file/x", "file"):
            self._ask("create_table", table("cat", "d", "t", location=self._at(place)))
        for number, path in enumerate(("//dbl//x//", "/a/b/../c/.", "/x?y=1#z é%20")):
            self._ask("create_table", table("cat", "d", f"p{number}", location=f"file://{self._folder}{path}"))
            self._ask("get_table_req", named("cat", "d", f"p{number}"))
        self._ask("create_table", table("cat", "d", "n" * 256, location=self._at("t/n256")))
        self._ask("create_table", table("cat", "d", "wide", parameters={"k" * 256: "v" * 40000, "é": "ü"}))
        self._ask("get_table_req", named("cat", "d", "wide"))
        for text in ("@cat#d", "@CAT#D", "@cat#nope", "@nowhere#d"):
            self._ask("get_all_tables", text)
        self._files()

    def filters(self) -> None:
        for text in (
            LANCE_FILTER,
            'hive_filter_field_params__table_type like "%"',
            'hive_filter_field_params__TABLE_TYPE like "lance"',
            'hive_filter_field_params__table_type = "lance"',
        ):
            self._ask("get_table_names_by_filter", "@cat#d", text, EVERY, loosely=True)
        for text in ("@CAT#D", "@cat#nope", "@nowhere#d"):
            self._ask("get_table_names_by_filter", text, LANCE_FILTER, EVERY)
        self._ask("get_table_names_by_filter", "@cat#d", LANCE_FILTER, thrift_wire.Typed(thrift_wire.I16, 0))
        self._ask("get_table_names_by_filter", "@cat#d", LANCE_FILTER, thrift_wire.Typed(thrift_wire.I16, -5))

    def bulk(self) -> None:
        for request in (
            *(named("cat", "d", ["t1", "T1", "nope", "kept", "t1", ""]), named("CAT", "D", ["VIEW"])),
            *(named("cat", "nope", ["t1"]), named("nowhere", "d", ["t1"])),
            thrift_wire.Struct({1: "d", 2: thrift_wire.Typed(thrift_wire.STRING, []), 4: "cat"}),
        ):
            self._ask("get_table_objects_by_name_req", request)

    def changes(self) -> None:
        self._write("t/t1")
        self._write("cat/d.db/managed")
        self._write("cat/d.db/plain")
        for name, new, place in (("T1", "Renamed", "t/t1"), ("managed", "managed2", None), ("plain", "plain2", None)):
            parameters = _MANAGED if name == "managed" else _LANCE
            where = self._at(place or f"cat/d.db/{name}")
            self._ask("alter_table", "@cat#d", name, table("cat", "d", new, parameters=parameters, location=where))
            self._ask("get_table_req", named("cat", "d", name))
            self._ask("get_table_req", named("cat", "d", new), without="DO_NOT_UPDATE_STATS")
        changed = table("cat", "d", "renamed", parameters={"EXTERNAL": "TRUE", "x": "y"}, location=self._at("t/new/"))
        self._ask("alter_table", "@CAT#D", "RENAMED", changed)
        self._ask("get_table_req", named("cat", "d", "renamed"))
        self._ask(
            "alter_table", "@cat#d", "renamed", table("cat", "d", "renamed", parameters={}, location=changed[7][2])
        )
        self._ask("get_table_req", named("cat", "d", "renamed"))
        for text, name, request in self._refused_changes(changed):
            self._ask("alter_table", text, name, request)
        self._ask("alter_table", "@cat#d", "renamed", thrift_wire.Struct({**changed, 2: "db5"}))
        self._ask("get_table_req", named("cat", "db5", "renamed"))
        self._files()

    def drops(self) -> None:
        self._ask("drop_table", "@cat#d", "nope", False)
        self._ask("drop_table", "@cat#nope", "t", False)
        self._ask("drop_table", "@nowhere#d", "t", False)
        for place in ("t/folded", "t/kept", "t/elsewhere"):
            self._write(place)
        self._ask("drop_table", "@cat#d", "FOLDED", True)
        self._ask("drop_table", "@cat#d", "kept", False)
        self._ask("drop_table", "@cat#d", "elsewhere", True)
        self._files()
        for text, cascade in (("@cat#d", False), ("@cat#nope", False), ("@nowhere#d", True), ("nope", True)):
            self._ask("drop_database", text, False, cascade)
        self._ask("drop_catalog", thrift_wire.Struct({1: "CAT"}))
        self._ask("drop_database", "@cat#D", False, True)
        self._files()
        self._ask("create_database", database("cat", "gone"))
        for name, parameters in (("inside", _LANCE), ("managed", _MANAGED)):
            self._ask("create_table", table("cat", "gone", name, parameters=parameters))
            self._write(f"cat/gone.db/{name}")
        self._ask("drop_database", "@cat#gone", True, False)
        self._ask("drop_database", "@cat#gone", True, True)
        self._files()
        self._ask("create_table", table("cat", "default", "t"))
        for name in ("db1", "db_0", "db_1", "db5", "edge"):
            self._ask("drop_database", f"@cat#{name}", False, True)
        self._ask("get_databases", "@cat#*")
        self._ask("drop_catalog", thrift_wire.Struct({1: "cat"}))
        self._ask("drop_database", "@cat#default", False, False)
        self._ask("drop_database", "@cat#default", False, True)
        self._ask("drop_catalog", thrift_wire.Struct({1: "cat"}))
        self._ask("drop_catalog", thrift_wire.Struct({1: "cat"}))
        self._ask("drop_catalog", thrift_wire.Struct({1: "hive"}))
        self._ask("drop_database", "default", False, True)
        self._ask("create_catalog", catalog("empty", self._at("empty")))
        self._ask("drop_catalog", thrift_wire.Struct({1: "empty"}))
        self._ask("no_such_method")
        self._ask("get_catalogs")
        self._files()

    def _refused_changes(self, good: thrift_wire.Struct) -> Iterator[tuple[str, str, thrift_wire.Struct]]:
        for text, name in (("@cat#d", "nope"), ("@cat#nope", "t1"), ("@nowhere#d", "t1")):
            yield text, name, thrift_wire.Struct({**good, 1: name, 17: None})
        for field, wrong in (
            *((1, "kept"), (1, ""), (2, "nope"), (17, "hive")),
            *((7, thrift_wire.Struct({**good[7], 2: place})) for place in ("rel/x", "s3://b/x", "s3a://b/x")),
            (7, thrift_wire.Struct({**good[7], 7: None})),
        ):
            yield "@cat#d", "renamed", thrift_wire.Struct({**good, field: wrong})

    def _ask(self, method: str, *arguments: Any, loosely: bool = False, without: str | None = None) -> None:
        """Makes a call; with `loosely`, messages are not compared, because they depend on the server's database."""
        outcome = self._client.ask(method, *arguments)
        shown = f"{method} {[dict(argument) if isinstance(argument, dict) else argument for argument in arguments]}"
        self.answers.append(
            (self._masked(shown)[:300], outcome.kind, self._comparable(method, outcome, loosely, without))
        )

    def _comparable(self, method: str, outcome: Outcome, loosely: bool, without: str | None) -> Any:
        if outcome.kind != "ok":
            return None if loosely else self._masked(outcome.value)
        value = self._masked(outcome.value)
        if method in _LISTED_IN_NO_ORDER:
            value = sorted(value) if isinstance(value, list) else sorted(value[1], key=lambda one: str(one[1]))
        if method == "get_table_req":
            value[1].pop(25, None)
            value[1][9].pop(without, None)
        return value

    def _masked(self, value: Any) -> Any:
        match value:
            case str():
                places = value.replace(str(self._folder), "FOLDER").replace(self._warehouse, "WAREHOUSE")
                return _TIMES.sub("TIME", places)
            case Mapping():
                return {key: self._masked(held) for key, held in value.items()}
            case list() | tuple():
                return [self._masked(item) for item in value]
            case int() if value > 1_000_000_000:
                return "TIME"
        return value

    def _at(self, place: str | None) -> str | None:
        return f"file://{self._folder}/{place}" if place else place

    def _path(self, place: str) -> str:
        return f"{self._folder}/{place}"

    def _write(self, place: str) -> None:
        path = self._folder / place
        path.mkdir(parents=True, exist_ok=True)
        (path / "data").write_text("data")

    def _files(self) -> None:
        result = sorted(str(path.relative_to(self._folder)) for path in self._folder.rglob("*"))
        self.answers.append(("files", "ok", result))
