"""The correct responses of a Hive Metastore."""

from __future__ import annotations

from asyncio import StreamReader
from collections.abc import Mapping
from typing import Any

from tests.fakes.thrift_wire import CALL, REPLY, Message, Struct, Typed, decoded, read_message
from tests.faults.backends import TABLE_NAMES, Catalog, location

_STRUCTS = 12


class Hive(Catalog):
    """A Hive Metastore; declared tables are returned as they were requested."""

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
        message = decoded(request)
        return Message(REPLY, message.name, message.sequence, self._look_up(message, acting)).encoded()

    def _look_up(self, message: Message, acting: bool) -> Struct:
        value: Any = message.body.get(1)
        match message.name:
            case "create_table":
                if acting:
                    self.declarations[value[1]] = Struct({1: value[1], 7: Struct({2: value[7][2]}), 9: value[9]})
                return Struct()
            case "get_table_req" if self.has(value[2]):
                return Struct({0: Struct({1: self._table(value[1], value[2])})})
            case "get_table_req":
                return Struct({2: Struct({1: f"hive.{value[1]}.{value[2]} table not found"})})
            case "get_table_objects_by_name_req":
                tables = [self._table(value[1], name) for name in value[2]]
                return Struct({0: Struct({1: Typed(_STRUCTS, tables)})})
            case "get_table_names_by_filter" | "get_all_tables":
                return Struct({0: list(TABLE_NAMES)})
            case "get_database":
                return Struct({0: Struct({1: value.partition("#")[2]})})
        raise AssertionError(message.name)

    def _table(self, database: str, name: str) -> Struct:
        usual = {1: name, 7: Struct({2: location(database, name)}), 9: {"table_type": "lance"}}
        table: Struct = self.declarations.get(name) or Struct(usual)
        return table
