"""Trials of one catalog behind the proxy with each fault, and their report."""

from __future__ import annotations

import asyncio
import re
import resource
import traceback
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from tests.documentation.pages import Page
from tests.faults.catalogs import CATALOGS, HTTP, Catalog, open_catalog, properties
from tests.faults.faults import LIMIT, PLACES, Expected, Fault
from tests.faults.operations import FAULTS, GROUPS, in_doubt
from tests.faults.proxy import PATIENCE, Proxy
from tests.support.operations import NAMES

T = TypeVar("T")
_TIMEOUT = 60.0  # Maximum seconds of an operation, including the simulated time of the proxy
_TABLES = ("t0", "t1", "t2")


@dataclass
class Report:
    """Figures of a trial."""

    impl: str
    faults: int = 0
    operations: int = 0
    injected: int = 0
    right: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)  # Wrong results, and errors that are not those of the spec
    hangs: list[str] = field(default_factory=list)
    peak_mb: float = 0.0  # Memory that the process allocated after the first fault
    seconds: float = 0.0


class Trial:
    """Calls a catalog through the proxy, and compares the results with the state of the catalog."""

    def __init__(self, proxy: Proxy, ns: AsyncNamespace, direct: AsyncNamespace, report: Report) -> None:
        self._catalog: Catalog = proxy.catalog
        self._proxy = proxy
        self._ns = ns
        self._direct = direct
        self._report = report
        self._places: dict[str, str] = {}

    async def prepare(self) -> None:
        await self._direct.create_namespace(CreateNamespaceRequest(id=list(self._id("new").parent)))
        for name in _TABLES:
            self._places[name] = await self._declare(self._direct, name)
        # The first removal imports modules, whose memory does not count.
        await self._declare(self._direct, "new")
        await self._direct.deregister_table(DeregisterTableRequest(id=list(self._id("new"))))

    async def run(self, fault: Fault) -> None:
        """Injects a fault into single and concurrent reads, and then into two changes."""
        self._fault = fault
        self._proxy.inject(fault, times=3, every=2)
        for name in ("t0", "t1", "t2", "t0"):
            await self._check_describe(name)
            await self._proxy.wait_idle()
        self._proxy.inject(fault, times=1)
        await asyncio.gather(*(self._check_describe(name) for name in _TABLES))
        await self._proxy.wait_idle()
        if fault.lists:
            self._proxy.inject(fault, times=1)
            await self._check_list()
            await self._proxy.wait_idle()
        await self._check_describe("t1")
        await self._check_changes()
        self._proxy.inject(None)
        # A fault of the changes may continue with the next request on each connection.
        await asyncio.gather(*(self._check_describe(name) for name in _TABLES))
        await self._proxy.wait_idle()
        await self._check_describe("t2", surely=True)

    async def _check_describe(self, name: str, *, surely: bool = False) -> None:
        result = await self._outcome("describe", self._ns.describe_table(DescribeTableRequest(id=list(self._id(name)))))
        if isinstance(result, LanceNamespaceError):
            if surely or (isinstance(result, TableNotFoundError) and not self._may_say_missing()):
                self._wrong("describe", f"{name}: {result!r}")
        elif result is not None and result.location != self._places[name]:
            self._wrong("describe", f"{name} is at {result.location}")

    def _may_say_missing(self) -> bool:
        return any(it is not None and it.error is TableNotFoundError for it in (self._fault.expected or {}).values())

    async def _check_list(self) -> None:
        result = await self._outcome("list", self._ns.list_tables(ListTablesRequest(id=list(self._id("new").parent))))
        if result is None or isinstance(result, LanceNamespaceError):
            return
        if sorted(name.rpartition(".")[2] for name in result.tables) != sorted(_TABLES):
            self._wrong("list", f"{result.tables}")

    async def _check_changes(self) -> None:
        self._proxy.inject(self._fault, times=1)
        request = self._request("new")
        result = await self._outcome("declare", self._ns.declare_table(request))
        self._proxy.inject(None)
        there = await self._is_there()
        self._check_change("declare", result, done=there)
        if not there:
            # The abandoned call may still be in progress.
            with suppress(TableAlreadyExistsError):
                await self._declare(self._direct, "new")
        self._proxy.inject(self._fault, times=1)
        gone = await self._outcome(
            "deregister", self._ns.deregister_table(DeregisterTableRequest(id=list(self._id("new"))))
        )
        self._proxy.inject(None)
        there = await self._is_there()
        self._check_change("deregister", gone, done=not there)
        if there:
            with suppress(TableNotFoundError):
                await self._direct.deregister_table(DeregisterTableRequest(id=list(self._id("new"))))

    def _check_change(self, operation: str, result: object, *, done: bool) -> None:
        if result is None:
            return
        if not isinstance(result, LanceNamespaceError):
            if not done:
                self._wrong(operation, "reported as done, but was not")
        elif done and not in_doubt(result):
            self._wrong(operation, f"done, but the error is {result!r}")

    async def _is_there(self) -> bool:
        await self._proxy.wait_idle()
        try:
            await self._direct.describe_table(DescribeTableRequest(id=list(self._id("new"))))
        except TableNotFoundError:
            return False
        return True

    async def _declare(self, ns: AsyncNamespace, name: str) -> str:
        made = await ns.declare_table(self._request(name))
        assert made.location is not None
        return made.location

    async def _outcome(self, operation: str, work: Awaitable[T]) -> T | LanceNamespaceError | None:
        """Returns the result or the error; None after a time-out, or an error that is not one of the spec."""
        self._report.operations += 1
        try:
            async with asyncio.timeout(_TIMEOUT):
                result = await work
            self._report.right += 1
            return result
        except LanceNamespaceError as e:
            name = type(e).__name__
            self._report.errors[name] = self._report.errors.get(name, 0) + 1
            if not str(e).isprintable():
                self._wrong(operation, f"an error that is not printable: {str(e)!r}")
            return e
        except TimeoutError:
            self._report.hangs.append(f"{self._fault.name}: {operation}")
        except Exception:  # every unexpected error is a finding of the trial
            self._wrong(operation, traceback.format_exc(limit=-4))
        return None

    def _wrong(self, operation: str, what: str) -> None:
        self._report.wrong.append(f"{self._fault.name}: {operation}: {what}")

    def _request(self, name: str) -> DeclareTableRequest:
        return DeclareTableRequest(id=list(self._id(name)), location=self._catalog.place(self._id(name)))

    def _id(self, name: str) -> TableId:
        return self._catalog.id(name, "trial")


def faults_for(impl: str) -> list[Fault]:
    return [fault for fault in FAULTS if impl in fault.on]


async def run_trial(impl: str, only: str = "", every: int = 1) -> Report:
    """Returns the report on a catalog, for one of `every` faults with `only` in their names."""
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
    catalog = open_catalog(impl)
    async with (
        Proxy(catalog, is_patient=False) as proxy,
        AsyncNamespace.connect(impl, properties(impl, catalog.url)) as direct,
        AsyncNamespace.connect(impl, {**properties(impl, proxy.url), **limits}) as ns,
    ):
        trial = Trial(proxy, ns, direct, report)
        await trial.prepare()
        before, began = _most_memory(), perf_counter()
        for fault in faults_for(impl)[::every]:
            if only in fault.name:
                report.faults += 1
                await trial.run(fault)
        report.seconds = perf_counter() - began
        report.injected = proxy.injected
        report.peak_mb = (_most_memory() - before) / 1024
    return report


def _most_memory() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        # The value of getrusage includes the memory of the parent.
        return int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


PAGE = "faults.md"
Row = tuple[str, Mapping[str, str]]  # The name of a fault, and its outcome by catalog
_COLUMNS = (tuple(HTTP), ("glue",), ("hive3",))
_BLOCK = re.compile(r"(<!-- faults -->\n).*(<!-- /faults -->)", re.DOTALL)
_THEN = {
    "again": "retry",
    "reads": "retry of reads",
    "never": "no retry",
    "doubt": "no retry, in doubt",
    "void": "no retry",
}


def render() -> str:
    return _BLOCK.sub(lambda result: f"{result[1]}\n{tables()}\n{result[2]}", Page(PAGE).text)


def tables() -> str:
    groups = [("No connection", list(_places())), *((name, list(_rows(faults))) for name, faults in GROUPS)]
    return "\n\n".join(_table(name, rows) for name, rows in groups)


def _places() -> Iterator[Row]:
    for name, unreachable in PLACES.items():
        yield name, {impl: _outcome(unreachable.expected(impl)) for impl in CATALOGS}


def _rows(faults: Sequence[Fault]) -> Iterator[Row]:
    for fault in faults:
        yield fault.name, {impl: _outcome(expected) for impl, expected in (fault.expected or {}).items()}


def _table(name: str, rows: Sequence[Row]) -> str:
    columns = [column for column in _COLUMNS if any(impl in outcomes for _, outcomes in rows for impl in column)]
    heads = (", ".join(NAMES[impl] for impl in column) for column in columns)
    lines = [f"## {name}", "", f"| fault | {' | '.join(heads)} |", f"|{'---|' * (len(columns) + 1)}"]
    for what, outcomes in rows:
        cells = (_cell({impl: outcomes[impl] for impl in column if impl in outcomes}) for column in columns)
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(outcomes: Mapping[str, str]) -> str:
    """Returns the outcome of the first catalog, and of those with another outcome."""
    if not outcomes:
        return ""
    usual, *_ = outcomes.values()
    others = (f"; {NAMES[impl]}: {outcome}" for impl, outcome in outcomes.items() if outcome != usual)
    return usual + "".join(others)


def _outcome(expected: Expected | None) -> str:
    if expected is None:
        return "success"
    name = expected.error.__name__.removesuffix("Error")
    return f"**{name}**, {_THEN[expected.then]}: {expected.message.strip(' :')}"
