"""One catalog behind the proxy, each misbehaviour in turn, and a report of what came of it."""

from __future__ import annotations

import asyncio
import resource
import traceback
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    ListTablesRequest,
)
from lance_namespace.errors import LanceNamespaceError, TableAlreadyExistsError, TableNotFoundError

from lance_ns_async import AsyncNamespace, TableId
from tests.network.catalogs import CATALOGS, Behind, kinds_for
from tests.network.proxy import PATIENCE, Kind, Proxy

T = TypeVar("T")

LIMIT = 2**20
"""What `max_response_bytes` is set to."""

_NET = 60.0
"""Seconds in which every operation has an end, those that the proxy lets pass included."""

_DOUBT = "whether it took effect is unknown"
_TABLES = ("t0", "t1", "t2")


@dataclass
class Report:
    """Figures of a trial."""

    impl: str
    kinds: int = 0
    operations: int = 0
    misdeeds: int = 0
    right: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """Answers that were not right, and errors that were not of the spec."""
    hangs: list[str] = field(default_factory=list)
    peak_mb: float = 0.0
    """Memory that the process took beyond what it had before the first misdeed."""
    seconds: float = 0.0
    slowest_kind: str = ""
    slowest: float = 0.0
    """Seconds of real time of the longest operation."""


class Trial:
    """Asks a catalog through the proxy, and checks what is answered against the catalog itself."""

    def __init__(
        self, behind: Behind, proxy: Proxy, ns: AsyncNamespace, direct: AsyncNamespace, report: Report
    ) -> None:
        self._proxy = proxy
        self._ns = ns
        self._direct = direct
        self._report = report
        self._parent = behind.namespace
        self._places: dict[str, str] = {}
        self._root = behind.site.properties.get("root", "file:///tmp/network")

    async def prepare(self) -> None:
        """Declares the tables that are asked for."""
        await self._direct.create_namespace(CreateNamespaceRequest(id=list(self._parent)))
        for name in _TABLES:
            self._places[name] = await self._declare(self._direct, name)
        # What the first removal imports is no memory that a misbehaviour takes.
        await self._declare(self._direct, "new")
        await self._direct.deregister_table(DeregisterTableRequest(id=self._id("new")))

    async def befall(self, kind: Kind) -> None:
        """Has a misbehaviour befall reads, alone and beside each other, then two changes."""
        self._kind = kind
        self._proxy.misbehave(kind, times=3, every=2)
        for name in ("t0", "t1", "t2", "t0"):
            await self._check_describe(name)
            await self._proxy.calm()
        self._proxy.misbehave(kind, times=1)
        await asyncio.gather(*(self._check_describe(name) for name in _TABLES))
        await self._proxy.calm()
        self._proxy.misbehave(kind, times=1)
        await self._check_list()
        await self._proxy.calm()
        await self._check_describe("t1")
        await self._check_changes()
        self._proxy.misbehave(None)
        # What began with the changes may go on with the next request on each connection.
        await asyncio.gather(*(self._check_describe(name) for name in _TABLES))
        await self._proxy.calm()
        await self._check_describe("t2", surely=True)

    async def _check_describe(self, name: str, *, surely: bool = False) -> None:
        found = await self._outcome("describe", self._ns.describe_table(DescribeTableRequest(id=self._id(name))))
        if isinstance(found, LanceNamespaceError):
            if surely or isinstance(found, TableNotFoundError):
                self._wrong("describe", f"{name}: {found!r}")
        elif found is not None and found.location != self._places[name]:
            self._wrong("describe", f"{name} is at {found.location}")

    async def _check_list(self) -> None:
        found = await self._outcome("list", self._ns.list_tables(ListTablesRequest(id=list(self._parent))))
        if found is None or isinstance(found, LanceNamespaceError):
            return
        if sorted(name.rpartition(".")[2] for name in found.tables) != sorted(_TABLES):
            self._wrong("list", f"{found.tables}")

    async def _check_changes(self) -> None:
        self._proxy.misbehave(self._kind, times=1)
        place = f"{self._root}/new"
        request = DeclareTableRequest(id=self._id("new"), location=place)
        found = await self._outcome("declare", self._ns.declare_table(request))
        self._proxy.misbehave(None)
        there = await self._is_there()
        self._check_change("declare", found, done=there)
        if not there:
            # What was given up may have been under way still.
            with suppress(TableAlreadyExistsError):
                await self._declare(self._direct, "new")
        self._proxy.misbehave(self._kind, times=1)
        gone = await self._outcome("deregister", self._ns.deregister_table(DeregisterTableRequest(id=self._id("new"))))
        self._proxy.misbehave(None)
        there = await self._is_there()
        self._check_change("deregister", gone, done=not there)
        if there:
            with suppress(TableNotFoundError):
                await self._direct.deregister_table(DeregisterTableRequest(id=self._id("new")))

    def _check_change(self, operation: str, found: object, *, done: bool) -> None:
        if found is None:
            return
        if not isinstance(found, LanceNamespaceError):
            if not done:
                self._wrong(operation, "said to be done, and is not")
        elif done and _DOUBT not in str(found):
            self._wrong(operation, f"done, and yet {found!r}")

    async def _is_there(self) -> bool:
        await self._proxy.calm()
        try:
            await self._direct.describe_table(DescribeTableRequest(id=self._id("new")))
        except TableNotFoundError:
            return False
        return True

    async def _declare(self, ns: AsyncNamespace, name: str) -> str:
        place = f"{self._root}/{name}"
        made = await ns.declare_table(DeclareTableRequest(id=self._id(name), location=place))
        assert made.location is not None
        return made.location

    async def _outcome(self, operation: str, work: Awaitable[T]) -> T | LanceNamespaceError | None:
        """What comes of it; None where it hangs or ends in an error that is none of the spec's."""
        self._report.operations += 1
        began = perf_counter()
        try:
            async with asyncio.timeout(_NET):
                found = await work
            self._report.right += 1
            return found
        except LanceNamespaceError as e:
            name = type(e).__name__
            self._report.errors[name] = self._report.errors.get(name, 0) + 1
            if not str(e).isprintable():
                self._wrong(operation, f"an error that is not printable: {str(e)!r}")
            return e
        except TimeoutError:
            self._report.hangs.append(f"{self._kind.name}: {operation}")
        except Exception:  # whatever a client lets through is what the trial is to find
            self._wrong(operation, traceback.format_exc(limit=-4))
        finally:
            took = perf_counter() - began
            if took > self._report.slowest:
                self._report.slowest, self._report.slowest_kind = took, f"{self._kind.name}: {operation}"
        return None

    def _wrong(self, operation: str, what: str) -> None:
        self._report.wrong.append(f"{self._kind.name}: {operation}: {what}")

    def _id(self, name: str) -> list[str]:
        return list(TableId([*self._parent, name]))


async def tried(impl: str, tmp: Path, only: str = "") -> Report:
    """The report on a catalog, of the misbehaviours with `only` in their names."""
    report = Report(impl)
    limits = {
        "attempt_timeout": f"{PATIENCE}s",
        "max_retries": "3",
        "backoff_initial": "1ms",
        "backoff_max": "2ms",
        "adaptive": "false",
        "circuit_after": "1h",
        "max_response_bytes": str(LIMIT),
    }
    async with AsyncExitStack() as stack:
        behind = stack.enter_context(CATALOGS[impl](tmp))
        proxy = await stack.enter_async_context(Proxy(behind.wire, behind.port))
        direct = await stack.enter_async_context(
            AsyncNamespace.connect(behind.site.impl, dict(behind.properties(behind.port)))
        )
        ns = await stack.enter_async_context(
            AsyncNamespace.connect(behind.site.impl, {**behind.properties(proxy.port), **limits})
        )
        trial = Trial(behind, proxy, ns, direct, report)
        await trial.prepare()
        before = _most_memory()
        began = perf_counter()
        for kind in kinds_for(impl):
            if only in kind.name:
                report.kinds += 1
                await trial.befall(kind)
        report.seconds = perf_counter() - began
        report.misdeeds = proxy.misdeeds
        report.peak_mb = (_most_memory() - before) / 1024
    return report


def _most_memory() -> int:
    """The most KiB that this process ever had."""
    status = Path("/proc/self/status")
    if status.exists():
        # What getrusage tells begins with what the parent had.
        return int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
