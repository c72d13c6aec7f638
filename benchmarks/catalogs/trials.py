"""Experiments other than speed: throttling, expiring credentials, blocks of the event loop, churn."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import anyio
import anyio.to_thread

from benchmarks.catalogs.callers import Callers
from benchmarks.catalogs.cell import Cell, complaint
from benchmarks.catalogs.churn import Rows, churn
from benchmarks.catalogs.process import Served
from benchmarks.catalogs.sites import Site, glue, polaris
from benchmarks.catalogs.stall import Stall
from benchmarks.support.figures import Spread
from benchmarks.support.report import spread
from lance_ns_async import AsyncNamespace
from lance_ns_async.calls.observers import Call
from lance_ns_async.progress import ProgressCallback
from tests.fakes.glue import FakeGlue

THROTTLED_EVERY = 3
CALLERS = 32
STALLS = 5
"""Number of new processes that build a client."""
ROLE = "arn:aws:iam::123456789012:role/bench"
SESSION_SECONDS = 4
EXPIRIES_SECONDS = 10.0
DESCRIBES = 2000

Trial = Callable[[int, int], tuple[str, Rows]]
"""Fills a catalog with numbers of Lance tables and other tables; returns a title, and rows of names and values."""


def throttle(tables: int, others: int) -> tuple[str, Rows]:
    """Describes all tables of a Glue database that refuses every third call."""
    rows: Rows = []
    with glue(tables, others) as (site, server):
        for strategy in ("auto", "list", "get"):
            server.heal()
            server.fail("ThrottlingException", operation="GetTables?", times=None, every=THROTTLED_EVERY)
            rows += anyio.run(_run_throttled, site, strategy)
    return f"ThrottlingException on every third call, {tables:,} tables", rows


async def _run_throttled(site: Site, strategy: str) -> Rows:
    outcomes: Counter[str] = Counter()

    def note(call: Call) -> None:
        outcomes[call.outcome] += 1

    properties = {**site.properties, "bulk_strategy": strategy}
    async with AsyncNamespace.connect(site.impl, properties) as namespace:
        with namespace.observe(note):
            rows = await _describe_all(namespace, site, f"by `{strategy}`")
    calls = f"{outcomes.total():,}, {outcomes['ThrottlingException']:,} of them throttled"
    return [*rows, (f"by `{strategy}`: calls", calls)]


async def _describe_all(
    namespace: AsyncNamespace, site: Site, how: str, progress: bool | ProgressCallback = False
) -> Rows:
    """Describes all tables once, and returns the results as rows."""
    names = site.extent.lance()
    start = time.perf_counter()
    ids = [(*site.extent.namespace, name) for name in names]
    described = await namespace.describe_tables(ids, progress=progress)
    seconds = time.perf_counter() - start
    found = {id.name: table.location for id, table in described.tables.items()}
    kinds = Counter(type(error).__name__ for error in described.errors.values())
    wrong = complaint(site.extent, Cell("ours", "describe all", len(names)), found)
    return [
        (f"{how}: resolved", f"{len(found):,} of {len(names):,}" + (f"; {wrong}" if wrong else ", all rightly")),
        (f"{how}: failed", ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "0"),
        (f"{how}: seconds", f"{seconds:.2f}"),
    ]


def expiry_glue(tables: int, others: int) -> tuple[str, Rows]:
    """Describes by many callers in an assumed role whose credentials expire, with and without notice."""
    with glue(tables, others) as (site, server):
        role = {**site.properties, "assume_role_arn": ROLE}
        sudden = anyio.run(_run_expiry, site, server, role)
        server.switch(session_seconds=SESSION_SECONDS)
        short = anyio.run(_short_sessions, site, server, role)
    return f"{CALLERS} concurrent callers in an assumed role whose credentials expire", [*sudden, *short]


async def _run_expiry(site: Site, server: FakeGlue, properties: Mapping[str, str]) -> Rows:
    async def expire_once() -> None:
        await anyio.sleep(2.0)
        await anyio.to_thread.run_sync(server.expire)
        await anyio.sleep(2.0)

    return await _callers(site, server, properties, expire_once, "revoked at once")


async def _short_sessions(site: Site, server: FakeGlue, properties: Mapping[str, str]) -> Rows:
    async def go_on() -> None:
        await anyio.sleep(EXPIRIES_SECONDS)

    how = f"sessions of {SESSION_SECONDS} s, for {EXPIRIES_SECONDS:g} s"
    return await _callers(site, server, properties, go_on, how)


async def _callers(
    site: Site, server: FakeGlue, properties: Mapping[str, str], during: Callable[[], Awaitable[None]], how: str
) -> Rows:
    server.clear()
    async with AsyncNamespace.connect(site.impl, properties) as namespace:
        tally = await Callers(namespace, site.extent).run(CALLERS, during)
    signers = {call.access_key_id for call in server.requests if call.operation != "AssumeRole"}
    return [
        (f"{how}: describes", f"{tally.asked:,}, {tally.right:,} of them answered rightly"),
        (f"{how}: failed", tally.failures()),
        (f"{how}: wrong", tally.wrong()),
        (f"{how}: calls of STS", str(list(server.calls).count("AssumeRole"))),
        (f"{how}: credentials that calls of Glue were signed with", str(len(signers))),
    ]


def expiry_polaris(tables: int, others: int) -> tuple[str, Rows]:
    """Describes tables in one call; during the call, all tokens issued so far become invalid."""
    with polaris(min(tables, DESCRIBES), others) as (site, server):
        rows = anyio.run(_run_token_expiry, site, server)
    return f"Polaris' tokens expire in the middle of {len(site.extent.lance()):,} describes", rows


async def _run_token_expiry(site: Site, server: Served) -> Rows:
    half = anyio.Event()
    outcomes = Counter[str]()

    def note(call: Call) -> None:
        outcomes[call.outcome] += 1

    def progress(finished: int, total: int) -> None:
        if finished >= total / 2:
            half.set()

    async def expire_at_half() -> None:
        await half.wait()
        await anyio.to_thread.run_sync(server.ask, "expire_tokens")

    before = server.ask("token_requests")
    async with AsyncNamespace.connect(site.impl, site.properties) as namespace, anyio.create_task_group() as group:
        group.start_soon(expire_at_half)
        with namespace.observe(note):
            rows = await _describe_all(namespace, site, "all", progress)
    calls = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
    return [
        *rows,
        ("calls, by outcome", calls),
        ("requests for a token, including the first one", str(server.ask("token_requests") - before)),
    ]


def stall(tables: int, others: int) -> tuple[str, Rows]:
    """Builds clients of Glue in fresh processes, beside a heartbeat in their event loops."""
    with glue(tables, others) as (site, _):
        id = [*site.extent.namespace, site.extent.lance()[0]]
        given = {"impl": site.impl, "properties": dict(site.properties), "id": id}
        stalls = [_run_stall(given) for _ in range(STALLS)]

    def millis(of: Callable[[Stall], float]) -> str:
        return spread(Spread.of(of(each) * 1e3 for each in stalls), ".1f") + " ms"

    return f"Building a client of Glue, {STALLS} fresh processes: median (least - most)", [
        ("connect(), with the import of aiobotocore; not a coroutine", millis(lambda s: s.connect)),
        ("first call, which builds the client", millis(lambda s: s.first)),
        ("a later call", millis(lambda s: s.later)),
        ("first call of a second namespace", millis(lambda s: s.again)),
        ("longest stall of the event loop in the first call", millis(lambda s: s.stalled)),
        ("the same, second namespace", millis(lambda s: s.stalled_again)),
        ("longest garbage collection in both, which also blocks the loop", millis(lambda s: s.collected)),
        ("longest stall of an idle loop in the same time", millis(lambda s: s.stalled_idle)),
    ]


def _run_stall(given: Mapping[str, object]) -> Stall:
    command = [sys.executable, "-m", "benchmarks.catalogs.stall", json.dumps(given)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    return Stall(**json.loads(done.stdout))


TRIALS: Mapping[str, Mapping[str, Trial]] = {
    "throttle": {"glue": throttle},
    "expiry": {"glue": expiry_glue, "polaris": expiry_polaris},
    "stall": {"glue": stall},
    "churn": {"hive3": churn},
}
"""The trials by name, with the catalogs that support them."""
