"""The pytest plugin: the fixtures of the checks, the options that name what is tested, and the report.

`pytest -p lance_ns_async.conformance.plugin --pyargs lance_ns_async.conformance --conformance-server http://HOST:PORT`.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from threading import Thread
from typing import Any, cast

import lance_namespace as spec
import lance_namespace.errors as err
import pytest
from lance_namespace import LanceNamespace

from lance_ns_async.conformance.home import ROWS, UNSUPPORTED, Home, describe_error, pages, stream
from lance_ns_async.conformance.targets import Target, class_target, close, server_target


class Result(StrEnum):
    """What a check found."""

    OK = "ok"
    UNSUPPORTED = "not supported"
    WRONG = "wrong"


@dataclass(frozen=True)
class Call:
    """One call of a check."""

    operation: str
    request: Any
    """The fields of the request that were set."""
    answer: str
    """The response, or the error with its code; long ones are cut."""


@dataclass(frozen=True)
class Check:
    """One rule of the spec, and what was found."""

    feature: str
    """The group of the check, e.g. `namespaces`."""
    name: str
    """The rule, as a sentence."""
    result: Result
    reason: str = ""
    """Why it is wrong, or not supported."""
    calls: Sequence[Call] = ()
    """The calls of the check, in order."""


@dataclass(frozen=True)
class Report:
    """All checks of a run."""

    target: str
    checks: Sequence[Check]
    leftovers: Sequence[str] = ()
    """What the checks created and could not remove."""
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    @property
    def counts(self) -> Counter[Result]:
        """Returns the number of checks with each result."""
        return Counter(it.result for it in self.checks)

    @property
    def conforms(self) -> bool:
        """Returns whether no check is wrong, and some check was run."""
        return not self.counts[Result.WRONG] and bool(self.counts[Result.OK])

    def line(self) -> str:
        """Returns the summary, e.g. `catalog: 70 ok, 3 wrong, 12 not supported`."""
        counts = ", ".join(f"{self.counts[it]} {it}" for it in (Result.OK, Result.WRONG, Result.UNSUPPORTED))
        return f"{self.target}: {counts}"

    def to_json(self) -> str:
        """Returns the report as JSON: `target`, `date`, `summary`, `checks` and `leftovers`."""
        summary = {str(it): self.counts[it] for it in Result}
        value = {"target": self.target, "date": self.date, "summary": summary, "leftovers": list(self.leftovers)}
        return json.dumps({**value, "checks": [asdict(it) for it in self.checks]}, indent=2, ensure_ascii=False) + "\n"

    def write(self, folder: Path) -> None:
        """Writes `conformance.json` into a folder, which is created."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "conformance.json").write_text(self.to_json(), encoding="utf-8")


_CALLS = pytest.StashKey[list[Call]]()
_REPORT = pytest.StashKey["Collector"]()
LIMIT = 60.0
"""Seconds that a call may take, so that an implementation that hangs does not stop the run."""

_LONGEST = 300  # Characters of a response in a report.

pytest.register_assert_rewrite("lance_ns_async.conformance.checks")


class Collector:
    """Collects the results of the checks."""

    def __init__(self) -> None:
        self.target: str = ""
        self.checks: list[Check] = []
        self.leftovers: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds the result of a check; an operation that is not supported is no failure."""
        report = yield
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, UNSUPPORTED):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"not supported: {error}")
        calls = item.stash.get(_CALLS, None)
        if calls is not None and (call.when == "call" or (call.when == "setup" and error)):
            unsupported = isinstance(error, (*UNSUPPORTED, pytest.skip.Exception))
            result = Result.OK if error is None else Result.UNSUPPORTED if unsupported else Result.WRONG
            target = item.funcargs.get("target") if isinstance(item, pytest.Function) else None
            if isinstance(target, Target):
                self.target = target.name
            self.checks.append(Check(_feature(item), rule_of(item), result, _reason(error), tuple(calls)))
        return report


def _feature(item: pytest.Item) -> str:
    return item.path.stem.removeprefix("test_").replace("_", " ")


def rule_of(item: pytest.Item) -> str:
    """Returns the name of a check."""
    name, _, case = item.name.removesuffix("]").partition("[")
    return name.removeprefix("test_").replace("_", " ") + (f" ({case})" if case else "")


def _reason(error: BaseException | None) -> str:
    if error is None:
        return ""
    if isinstance(error, AssertionError | pytest.fail.Exception):
        text = str(error)
    elif isinstance(error, (*UNSUPPORTED, pytest.skip.Exception)):
        text = f"{type(error).__name__}: {error}"
    else:
        text = f"expected a response, got {describe_error(error)}"
    return text.split("\n", 1)[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("conformance", "Lance Namespace spec")
    group.addoption("--conformance-class", metavar="PATH", help="The class to test, e.g. package.module.Class.")
    group.addoption(
        "--conformance-property", action="append", default=[], metavar="KEY=VALUE", help="An argument of the class."
    )
    group.addoption("--conformance-server", metavar="URL", help="The server of the REST protocol to test.")
    group.addoption(
        "--conformance-header", action="append", default=[], metavar="NAME=VALUE", help="A header of each request."
    )
    group.addoption("--conformance-parent", default="", metavar="A.B", help="The namespace for those of the checks.")
    group.addoption("--conformance-report", metavar="FOLDER", help="Write conformance.json.")


def pytest_configure(config: pytest.Config) -> None:
    """Starts collecting."""
    config.stash[_REPORT] = Collector()
    config.pluginmanager.register(config.stash[_REPORT], "lance-conformance")


def collector(config: pytest.Config) -> Collector:
    """Returns what the run collects."""
    return config.stash[_REPORT]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the report."""
    if (folder := session.config.getoption("--conformance-report")) is not None:
        collected = collector(session.config)
        Report(collected.target, collected.checks, collected.leftovers).write(Path(folder))


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> Target:
    """What is tested; a test suite may override this fixture."""
    parent = tuple(filter(None, pytestconfig.getoption("--conformance-parent").split(".")))

    def pairs(name: str) -> dict[str, str]:
        options = [it.partition("=") for it in pytestconfig.getoption(name)]
        if not all(equals for _, equals, _ in options):
            # The message does not contain the option, because it may be a secret.
            raise pytest.UsageError(f"{name}: must be NAME=VALUE")
        return {key: value for key, _, value in options}

    if url := pytestconfig.getoption("--conformance-server"):
        return server_target(url, pairs("--conformance-header"), parent=parent)
    if path := pytestconfig.getoption("--conformance-class"):
        return class_target(path, pairs("--conformance-property"), parent=parent)
    raise pytest.UsageError("--conformance-class or --conformance-server: name what is tested")


@pytest.fixture
def calls(request: pytest.FixtureRequest) -> list[Call]:
    """The calls of the check."""
    calls: list[Call] = request.node.stash.setdefault(_CALLS, [])
    return calls


@pytest.fixture(scope="session")
def leftovers(pytestconfig: pytest.Config) -> list[str]:
    """Receives what could not be removed; a test suite may override this fixture."""
    return collector(pytestconfig).leftovers


@pytest.fixture
def ns(target: Target, calls: list[Call], leftovers: list[str]) -> Iterator[LanceNamespace]:
    """A client; what was created through it is removed after the check."""
    client = target.connect()
    yield cast(LanceNamespace, Recorder(client, calls))
    for id in sorted(_created(calls), key=len, reverse=True):
        try:
            _remove(client, list(id), leftovers)
        except Exception as e:  # of another package, too: the rest is to be removed
            leftovers.append(f"{'.'.join(id)}: {describe_error(e)}")
    close(client)


@pytest.fixture
def other(target: Target, calls: list[Call]) -> Iterator[LanceNamespace]:
    """A second client."""
    client = target.connect()
    yield cast(LanceNamespace, Recorder(client, calls))
    close(client)


_numbers = itertools.count()
_RUN = uuid.uuid4().hex[:6]


@pytest.fixture
def home(ns: LanceNamespace, target: Target) -> Home:
    """A namespace that no other check uses, created under the target's parent."""
    home = Home(tuple(target.parent), f"conformance_{_RUN}_{next(_numbers)}")
    ns.create_namespace(spec.CreateNamespaceRequest(id=home.id))
    return home


@pytest.fixture
def table(ns: LanceNamespace, home: Home) -> list[str]:
    """The id of a table with three rows."""
    ns.create_table(spec.CreateTableRequest(id=home.table("t")), stream(ROWS))
    return home.table("t")


def _created(calls: list[Call]) -> set[tuple[str, ...]]:
    """Returns the ids of the namespaces that may have been created: a lost response is no refusal."""
    creations = [it for it in calls if it.operation == "create_namespace" and it.request.get("id")]
    return {tuple(it.request["id"]) for it in creations if not it.answer.startswith("InvalidInputError")}


def _remove(client: LanceNamespace, id: list[str], leftovers: list[str]) -> None:
    names: set[str] = set()
    try:
        for page in pages(client.list_tables, spec.ListTablesRequest(id=id)):
            names.update(page.tables)
    except err.NamespaceNotFoundError:
        return
    except (*UNSUPPORTED, pytest.fail.Exception):
        pass  # What was listed until then is dropped.
    for name in sorted(names):
        _drop(client, [*id, name], leftovers)
    with suppress(err.NamespaceNotFoundError):
        client.drop_namespace(spec.DropNamespaceRequest(id=id))


def _drop(client: LanceNamespace, id: list[str], leftovers: list[str]) -> None:
    try:
        client.drop_table(spec.DropTableRequest(id=id))
    except err.TableNotFoundError:
        return
    except Exception as e:
        client.deregister_table(spec.DeregisterTableRequest(id=id))
        leftovers.append(f"the data of {'.'.join(id)}, which is only deregistered: {describe_error(e)}")


class Recorder:
    """Passes calls on to a client, and appends each to `calls`."""

    def __init__(self, client: LanceNamespace, calls: list[Call]) -> None:
        self._client = client
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(request: Any, *data: bytes) -> Any:
            fields = dict(request) if isinstance(request, dict) else request.model_dump(exclude_none=True)
            try:
                answer = call_within(LIMIT, name, lambda: method(request, *data))
            except BaseException as e:  # an interrupted call, too, may have created something that must be removed
                code = f" (code {int(e.code)})" if isinstance(e, err.LanceNamespaceError) else ""
                self._calls.append(Call(name, fields, f"{type(e).__name__}{code}: {e}"[:_LONGEST]))
                raise
            self._calls.append(Call(name, fields, _shown(answer)))
            return answer

        return call


def call_within(seconds: float, operation: str, call: Callable[[], Any]) -> Any:
    """Returns the result of a call in another thread; raises its error, or `TimeoutError` if it takes too long."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as e:  # raised again by the thread that waits
            future.set_exception(e)

    Thread(target=run, daemon=True).start()
    if not wait([future], timeout=seconds).done:
        raise TimeoutError(f"{operation} did not end within {seconds:g} s")
    return future.result()


def _shown(answer: Any) -> str:
    if not hasattr(answer, "model_dump"):
        return repr(answer)[:_LONGEST]
    # Storage options may contain credentials.
    fields = answer.model_dump(exclude_none=True, exclude={"storage_options", "data"})
    return f"{type(answer).__name__} {fields}"[:_LONGEST]
