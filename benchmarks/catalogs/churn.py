"""Behaviour of a connection pool under churn: cancelled calls, and a server that is killed and restarted."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from benchmarks.catalogs.callers import Callers
from benchmarks.catalogs.sites import Site, hive3
from lance_ns_async import AsyncNamespace
from tests.servers.hive import Hive

CALLERS = 200
CONNECTIONS = 8
SHARE = 0.1
"""Shares of the calls that are cancelled, and that request missing tables."""
BEFORE, AFTER = 1000, 2000
"""Number of correct responses before the server is killed, and after its restart."""
PATIENCE = 120.0
WATCH = 0.05
"""Seconds between two counts of the connections."""

Rows = list[tuple[str, str]]


def churn(tables: int, others: int) -> tuple[str, Rows]:
    """Runs many callers while calls are cancelled and the metastore is killed and restarted."""
    with hive3(tables, others) as (site, server):
        rows = anyio.run(_run_churn, site, server)
    return f"{CALLERS} concurrent describes over {CONNECTIONS} connections, under churn", rows


async def _run_churn(site: Site, server: Hive) -> Rows:
    port = urlsplit(server.uri).port or 0
    rights: list[int] = []
    downtime = 0.0
    properties = {**site.properties, "client.pool-size": str(CONNECTIONS)}
    async with AsyncNamespace.connect(site.impl, properties) as namespace:
        callers = Callers(namespace, site.extent, cancel=SHARE, missing=SHARE)

        async def killed_and_back() -> None:
            nonlocal downtime
            with anyio.move_on_after(PATIENCE):
                await callers.wait_for_responses(BEFORE)
            rights.append(callers.tally.right)
            start = time.perf_counter()
            await anyio.to_thread.run_sync(server.kill)
            await anyio.to_thread.run_sync(server.start)
            downtime = time.perf_counter() - start
            rights.append(callers.tally.right)
            with anyio.move_on_after(PATIENCE):
                await callers.wait_for_responses(rights[-1] + AFTER)

        async with anyio.create_task_group() as group:
            watch = _Watch(port)
            group.start_soon(watch.run)
            tally = await callers.run(CALLERS, killed_and_back)
            group.cancel_scope.cancel()
        kept = connections_to(port)
    left = connections_to(port)
    return [
        ("describes", f"{tally.asked:,}"),
        ("answered rightly", f"{tally.right:,}"),
        ("completed before the server was killed", f"{rights[0]:,}"),
        ("completed after its restart", f"{tally.right - rights[1]:,}"),
        ("cancelled during the call", f"{tally.cancelled:,}"),
        (f"failed while the server was down for {downtime:.1f} s", tally.failures()),
        ("responses about another table", str(len(tally.stale))),
        ("wrong responses in total", tally.wrong()),
        ("maximum of open connections, including closing ones and one for the server check", str(watch.most)),
        ("open connections after all calls", str(kept)),
        ("open connections after the namespace was closed", str(left)),
    ]


class _Watch:
    """Counts the connections periodically."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.most = 0

    async def run(self) -> None:
        while True:
            self.most = max(self.most, connections_to(self._port))
            await anyio.sleep(WATCH)


def connections_to(port: int) -> int:
    """Returns the number of this process's sockets to a port, in any state. Linux only."""
    own = {_link_target(entry) for entry in Path("/proc/self/fd").iterdir()}
    found = 0
    for path in (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6")):
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            found += int(fields[2].rpartition(":")[2], 16) == port and f"socket:[{fields[9]}]" in own
    return found


def _link_target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:
        # It was the descriptor of the folder itself.
        return ""
