"""Cost of a call with the package's Thrift codec, compared with thriftpy2.

`python -m benchmarks.thrift` describes a table of 20 columns at a server in another
process: through the package's connection pool and decoder, with thriftpy2's asyncio client, and with its synchronous
client, whose codec is compiled; the latter blocks the event loop, or runs in a worker thread. The ways alternate in
rounds. Time is the CPU time of this process.
"""

import argparse
import asyncio
import gc
import io
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

from lance_ns_async.backends.hive3 import wire
from lance_ns_async.model import TableId
from lance_ns_async.transports.thrift.connection import Address, Connection, Connector, ThriftRoute
from lance_ns_async.transports.thrift.transport import Pool, call_on, result

IDL = """
struct FieldSchema { 1: string name, 2: string type, 3: string comment }
struct SerDeInfo { 1: string name, 2: string serializationLib, 3: map<string, string> parameters }
struct StorageDescriptor {
  1: list<FieldSchema> cols, 2: string location, 3: string inputFormat, 4: string outputFormat, 5: bool compressed,
  6: i32 numBuckets, 7: SerDeInfo serdeInfo, 8: list<string> bucketCols, 10: map<string, string> parameters
}
struct Table {
  1: string tableName, 2: string dbName, 3: string owner, 4: i32 createTime, 5: i32 lastAccessTime, 6: i32 retention,
  7: StorageDescriptor sd, 8: list<FieldSchema> partitionKeys, 9: map<string, string> parameters, 12: string tableType,
  17: string catName
}
struct GetTableRequest { 1: string dbName, 2: string tblName, 4: string catName }
struct GetTableResult { 1: Table table }
service ThriftHiveMetastore { GetTableResult get_table_req(1: GetTableRequest req) }
"""
TABLE = TableId(["hive", "sales", "orders"])
LOCATION = "s3://lake/warehouse/sales.db/orders.lance"

Describe = Callable[[], Awaitable[str]]
"""Describes the table, and returns its location."""


@asynccontextmanager
async def ways(port: int) -> AsyncIterator[dict[str, Describe]]:
    """Provides the ways by name; the first one is the package's."""
    import thriftpy2
    from thriftpy2.contrib.aio.rpc import make_client as make_async_client
    from thriftpy2.rpc import make_client

    idl: Any = thriftpy2.load_fp(io.StringIO(IDL), "metastore_thrift")
    service = idl.ThriftHiveMetastore
    pool = Pool(Connector(ThriftRoute([Address("127.0.0.1", port)], 10.0, 1 << 20), _greet), 1)
    asynchronous: Any = await make_async_client(service, "127.0.0.1", port)
    synchronous: Any = make_client(service, "127.0.0.1", port)

    async def exchange(connection: Connection) -> Any:
        reply = await call_on(connection, wire.GET_TABLE, 1, wire.named_table(TABLE))
        return result(wire.GET_TABLE, reply, lambda name, message: (), lambda value: value[1])

    async def call() -> str:
        location: str = (await pool.run_on_connection(exchange))[7][2]
        return location

    def request() -> Any:
        return idl.GetTableRequest(dbName=TABLE[1], tblName=TABLE[2], catName=TABLE[0])

    async def call_asynchronous() -> str:
        location: str = (await asynchronous.get_table_req(request())).table.sd.location
        return location

    async def call_blocking() -> str:
        location: str = synchronous.get_table_req(request()).table.sd.location
        return location

    async def call_in_thread() -> str:
        location: str = (await asyncio.to_thread(lambda: synchronous.get_table_req(request()))).table.sd.location
        return location

    try:
        yield {
            "lance_ns_async": call,
            "thriftpy2, asyncio client": call_asynchronous,
            "thriftpy2, blocking": call_blocking,
            "thriftpy2, in a thread": call_in_thread,
        }
    finally:
        await pool.aclose()
        asynchronous.close()
        synchronous.close()


async def _greet(connection: Connection) -> None:
    """Makes no first exchange."""


async def _seconds(describe: Describe, calls: int) -> float:
    gc.collect()
    started_at = time.process_time()
    for _ in range(calls):
        assert await describe() == LOCATION
    return (time.process_time() - started_at) / calls


async def _run(port: int, rounds: int, calls: int) -> None:
    async with ways(port) as by_name:
        costs: dict[str, list[float]] = {name: [] for name in by_name}
        for number in range(rounds + 1):
            for name, describe in by_name.items():
                seconds = await _seconds(describe, calls)
                if number:
                    # The round before was for warming up.
                    costs[name].append(seconds)
    own = costs["lance_ns_async"]
    for name, times in costs.items():
        ratio = median(other / mine for other, mine in zip(times, own, strict=True))
        print(f"{name:<28}{median(times) * 1e6:6.0f} µs of CPU a call   ratio {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thrift", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1_000, help="calls in each round")
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "benchmarks.thrift.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        try:
            asyncio.run(_run(int(server.stdout.readline()), arguments.rounds, arguments.calls))
        finally:
            server.stdin.close()


if __name__ == "__main__":
    main()
