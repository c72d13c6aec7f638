"""A Hive Metastore of bare sockets: what a good answer of it is."""

from __future__ import annotations

from asyncio import StreamReader
from collections.abc import Mapping
from typing import Any

from tests.fakes.thrift_wire import CALL, REPLY, Message, Struct, Typed, decoded, read_message
from tests.faults.backends import LISTED, Catalog, location

_STRUCTS = 12


class Hive(Catalog):
    """Requests are kept as they were sent; a declared table is kept as it was asked for."""

    impl = "hive3"

    def properties(self, url: str) -> Mapping[str, str]:
        return {"uri": url.replace("https://", "thrift://").replace("http://", "thrift://")}

    async def read(self, reader: StreamReader) -> bytes:
        message = await read_message(reader)
        assert message.kind == CALL
        return message.encoded()

    def is_write(self, request: bytes) -> bool:
        return decoded(request).name == "create_table"

    def answer(self, request: bytes, *, acting: bool = True) -> bytes:
        asked = decoded(request)
        return Message(REPLY, asked.name, asked.sequence, self._found(asked, acting)).encoded()

    def _found(self, asked: Message, acting: bool) -> Struct:
        told: Any = asked.body.get(1)
        match asked.name:
            case "create_table":
                if acting:
                    self.declared[told[1]] = Struct({1: told[1], 7: Struct({2: told[7][2]}), 9: told[9]})
                return Struct()
            case "get_table_req" if self.has(told[2]):
                return Struct({0: Struct({1: self._table(told[1], told[2])})})
            case "get_table_req":
                return Struct({2: Struct({1: f"hive.{told[1]}.{told[2]} table not found"})})
            case "get_table_objects_by_name_req":
                tables = [self._table(told[1], name) for name in told[2]]
                return Struct({0: Struct({1: Typed(_STRUCTS, tables)})})
            case "get_table_names_by_filter" | "get_all_tables":
                return Struct({0: list(LISTED)})
            case "get_database":
                return Struct({0: Struct({1: told.partition("#")[2]})})
        raise AssertionError(asked.name)

    def _table(self, database: str, name: str) -> Struct:
        usual = {1: name, 7: Struct({2: location(database, name)}), 9: {"table_type": "lance"}}
        found: Struct = self.declared.get(name) or Struct(usual)
        return found
