"""A metastore that answers every call with the same table, as a process: `python -m benchmarks.thrift.server`."""

import asyncio
import struct
import sys

from lance_ns_async.transports.thrift import binary

COLUMNS = 20


def _table() -> bytes:
    """Returns the encoded result of `get_table_req`, with the fields that a metastore sends for a Lance table."""
    columns = [
        binary.text(1, f"column_{number}") + binary.text(2, "double") + binary.text(3, "") + binary.STOP
        for number in range(COLUMNS)
    ]
    storage = (
        struct.pack(">BhBI", 15, 1, 12, COLUMNS) + b"".join(columns),
        binary.text(2, "s3://lake/warehouse/sales.db/orders.lance"),
        binary.text(3, "com.lancedb.lance.mapred.LanceInputFormat"),
        binary.text(4, "com.lancedb.lance.mapred.LanceOutputFormat"),
        binary.flag(5, False),
        binary.number(6, 0),
        binary.struct_field(7, binary.text(2, "com.lancedb.lance.mapred.LanceSerDe"), binary.text_pairs(3, {})),
        binary.texts(8, ()),
        binary.text_pairs(10, {}),
    )
    parameters = {"EXTERNAL": "TRUE", "table_type": "lance", "managed_by": "storage", "transient_lastDdlTime": "17"}
    table = (
        binary.text(1, "orders"),
        binary.text(2, "sales"),
        binary.text(3, "etl"),
        binary.number(4, 1_700_000_000),
        binary.struct_field(7, *storage),
        binary.no_structs(8),
        binary.text_pairs(9, parameters),
        binary.text(12, "EXTERNAL_TABLE"),
        binary.text(17, "hive"),
    )
    return binary.struct_field(0, binary.struct_field(1, *table)) + binary.STOP


class _Server(asyncio.Protocol):
    body = _table()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        # A client waits for each reply, and its short calls arrive whole. The header of a reply is that of the call.
        header = 12 + int.from_bytes(data[4:8], "big")
        self._transport.write(b"\x80\x01\x00\x02" + data[4:header] + self.body)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # The process ends with the one that started it.
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
