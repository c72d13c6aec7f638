"""Describes through a gateway during hostile queries: `python -m benchmarks.gateway_attacks`.

Starts `lance-ns serve` on a directory catalog and describes a table 200 times, first alone and then while two clients
send hostile queries. Prints the times of the describes, the memory of the process, the responses to the queries, and
the time from SIGTERM to the end of the process. The address space of the process is limited, because a gateway that
cannot handle such queries uses all memory of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import aiohttp
import pyarrow as pa

from lance_ns_async import AsyncNamespace

DESCRIBES: Final = 200
IN_FLIGHT: Final = 8
ADDRESS_SPACE: Final = 6_000_000_000
GRACE: Final = 5.0
TOKEN: Final = "token"

ATTACKS: Mapping[str, tuple[str, Any]] = {
    "nested NOT": ("count_rows", {"predicate": "NOT (" * 60 + "id > 1" + ")" * 60}),
    "repeat": ("count_rows", {"predicate": "length(repeat('a', 2000000000)) > 5"}),
    "range": ("count_rows", {"predicate": "array_length(range(0, 1000000000)) > 5"}),
    "every row": ("query", {"k": 2**31 - 1, "vector": {}}),
    "largest condition": ("count_rows", {"predicate": " OR ".join(f"id = {i}" for i in range(1_990))}),
    "compressed rows": ("insert", None),
}


def bomb() -> bytes:
    """Returns a stream of 1.5 GB of rows, compressed."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    zeros = pa.array([0] * 1_000_000, pa.int64())
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(190):
            writer.write_batch(pa.record_batch([zeros, pa.nulls(1_000_000, pa.string())], schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def memory(pid: int) -> int:
    """Returns the peak memory of a process in bytes; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


async def describes(session: aiohttp.ClientSession, url: str) -> tuple[list[float], Counter[str]]:
    """Returns the seconds of each describe, and the outcomes."""
    turns = asyncio.Semaphore(IN_FLIGHT)
    outcomes: Counter[str] = Counter()
    seconds: list[float] = []

    async def one() -> None:
        async with turns:
            start = perf_counter()
            try:
                async with session.post(f"{url}/v1/table/t/describe", json={}) as answer:
                    await answer.read()
                    outcomes[str(answer.status)] += 1
            except (aiohttp.ClientError, TimeoutError) as e:
                outcomes[type(e).__name__] += 1
            seconds.append(perf_counter() - start)

    await asyncio.gather(*(one() for _ in range(DESCRIBES)))
    return seconds, outcomes


async def attack(session: aiohttp.ClientSession, url: str, name: str, outcomes: Counter[str]) -> None:
    """Sends a hostile query repeatedly."""
    operation, body = ATTACKS[name]
    data = bomb() if body is None else None
    while True:
        try:
            async with session.post(f"{url}/v1/table/t/{operation}", json=body, data=data) as answer:
                await answer.read()
                outcomes[str(answer.status)] += 1
        except (aiohttp.ClientError, TimeoutError) as e:
            outcomes[type(e).__name__] += 1
            await asyncio.sleep(0.1)


def launch(root: str) -> subprocess.Popen[str]:
    """Starts the gateway of a directory catalog."""
    environment = {
        **os.environ,
        "LANCE_NS_IMPL": "dir",
        "LANCE_NS_PROPERTY_ROOT": root,
        "LANCE_NS_PROPERTY_OPERATION_TIMEOUT": "10s",
        "LANCE_NS_TOKEN": TOKEN,
    }
    bounded = ["sh", "-c", f'ulimit -v {ADDRESS_SPACE >> 10}; exec "$@"', "sh"]
    line = [*bounded, sys.executable, "-m", "lance_ns_async.cli", "serve", "--port", "0", "--grace", str(GRACE)]
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def measure(name: str, root: str) -> None:
    """Prints the figures of one attack."""
    server = launch(root)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        timeout = aiohttp.ClientTimeout(total=15)
        async with aiohttp.ClientSession(headers={"x-lance-token": TOKEN}, timeout=timeout) as session:
            await describes(session, url)
            alone, _ = await describes(session, url)
            before = memory(server.pid)
            evil: Counter[str] = Counter()
            attackers = [asyncio.create_task(attack(session, url, name, evil)) for _ in range(2)]
            await asyncio.sleep(0.5)
            beside, outcomes = await describes(session, url)
            for task in attackers:
                task.cancel()
            await asyncio.wait(attackers)
            after = memory(server.pid)
        start = perf_counter()
        died = server.poll()
        server.send_signal(signal.SIGTERM)
        try:
            code = str(await asyncio.to_thread(server.wait, 60))
        except subprocess.TimeoutExpired:
            code = "none"
        ended = perf_counter() - start
    finally:
        server.kill()
        server.wait()
    print(
        f"| {name} | {dict(evil)} | {_ms(alone)} | {_ms(beside)} | {dict(outcomes)} | {before >> 20} | "
        f"{'died' if died is not None else after >> 20} | {ended:.1f} s, exit code {code} |",
        flush=True,
    )


def _ms(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.0f} / {statistics.quantiles(seconds, n=100)[98] * 1000:.0f} ms"


async def main() -> None:
    """Prints a table with a row for each attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", default=list(ATTACKS), help=f"some of {', '.join(ATTACKS)}")
    chosen = parser.parse_args().attacks
    print(f"grace {GRACE:g} s, {DESCRIBES} describes, {IN_FLIGHT} at once; p50 / p99")
    print(
        "| attack | responses | describes alone | describes during the attack | outcomes | MiB before | at most | end |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        async with AsyncNamespace.connect("dir", {"root": root}) as ns:
            numbers = list(range(2_000_000))
            await ns.write(["t"], pa.table({"id": numbers, "text": [f"row number {i}" for i in numbers]}))
        for name in chosen:
            await measure(name, root)


if __name__ == "__main__":
    asyncio.run(main())
