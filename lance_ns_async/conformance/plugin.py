"""The pytest plugin: the fixtures of the checks, the options that name what is tested, and the report.

`pytest -p lance_ns_async.conformance.plugin --pyargs lance_ns_async.conformance --conformance-server http://HOST:PORT`.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    CreateTableRequest,
    DeregisterTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    LanceNamespace,
    ListNamespacesRequest,
    ListTablesRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
    UnsupportedOperationError,
)

from lance_ns_async.conformance.home import Home
from lance_ns_async.conformance.recorder import Recorder
from lance_ns_async.conformance.report import Call, Check, Report, Result
from lance_ns_async.conformance.rows import ROWS, stream
from lance_ns_async.conformance.targets import Target, class_target, close, server_target

_CALLS = pytest.StashKey[list[Call]]()
_REPORT = pytest.StashKey["Collector"]()
_UNSUPPORTED = (UnsupportedOperationError, NotImplementedError)
"""pylance raises the second."""
_PACKAGE = "lance_ns_async.conformance.checks"

pytest.register_assert_rewrite(_PACKAGE)


class Collector:
    """Collects the results of the checks."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.left: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds the result of a check; an operation that is not supported is no failure."""
        report = yield
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, _UNSUPPORTED):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"not supported: {error}")
        calls = item.stash.get(_CALLS, None)
        if calls is not None and (call.when == "call" or (call.when == "setup" and error)):
            unsupported = isinstance(error, (*_UNSUPPORTED, pytest.skip.Exception))
            result = Result.OK if error is None else Result.UNSUPPORTED if unsupported else Result.WRONG
            self.checks.append(Check(_feature(item), _rule(item), result, _reason(error), tuple(calls)))
        return report


def _feature(item: pytest.Item) -> str:
    return item.path.stem.removeprefix("test_").replace("_", " ")


def _rule(item: pytest.Item) -> str:
    name, _, case = item.name.removesuffix("]").partition("[")
    return name.removeprefix("test_").replace("_", " ") + (f" ({case})" if case else "")


def _reason(error: BaseException | None) -> str:
    if error is None:
        return ""
    text = (
        str(error) if isinstance(error, AssertionError | pytest.fail.Exception) else f"{type(error).__name__}: {error}"
    )
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
    group.addoption("--conformance-report", metavar="FOLDER", help="Write the report as JSON, HTML and a badge.")


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
        name = _target(session.config).name
        Report(name, collected.checks, collected.left).write(Path(folder))


def _target(config: pytest.Config) -> Target:
    parent = tuple(filter(None, config.getoption("--conformance-parent").split(".")))

    def pairs(name: str) -> dict[str, str]:
        return dict(it.split("=", 1) for it in config.getoption(name))

    if url := config.getoption("--conformance-server"):
        return server_target(url, pairs("--conformance-header"), parent=parent)
    if path := config.getoption("--conformance-class"):
        return class_target(path, pairs("--conformance-property"), parent=parent)
    raise pytest.UsageError("--conformance-class or --conformance-server: name what is tested")


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> Target:
    """What is tested; a test suite may override this fixture."""
    return _target(pytestconfig)


@pytest.fixture
def calls(request: pytest.FixtureRequest) -> list[Call]:
    """The calls of the check."""
    calls: list[Call] = request.node.stash.setdefault(_CALLS, [])
    return calls


@pytest.fixture
def made() -> list[list[str]]:
    """The namespaces that the check has tried to create."""
    return []


@pytest.fixture(scope="session")
def left(pytestconfig: pytest.Config) -> list[str]:
    """Receives what could not be removed; a test suite may override this fixture."""
    return collector(pytestconfig).left


@pytest.fixture
def ns(target: Target, calls: list[Call], made: list[list[str]], left: list[str]) -> Iterator[LanceNamespace]:
    """A client; what was created through it is removed after the check."""

    def note(operation: str, fields: Any) -> None:
        if operation == "create_namespace" and fields.get("id"):
            made.append(list(fields["id"]))

    client = target.connect()
    yield cast(LanceNamespace, Recorder(client, calls, note))
    for id in sorted(made, key=len, reverse=True):
        try:
            _remove(client, id)
        except LanceNamespaceError as e:
            left.append(f"{'.'.join(id)}: {e}")
    close(client)


@pytest.fixture
def other(target: Target, calls: list[Call]) -> Iterator[LanceNamespace]:
    """A second client."""
    client = target.connect()
    yield cast(LanceNamespace, Recorder(client, calls, lambda *_: None))
    close(client)


_numbers = itertools.count()
_RUN = uuid.uuid4().hex[:6]


@pytest.fixture
def home(ns: LanceNamespace, target: Target) -> Home:
    """A namespace that no other check uses, created under the target's parent."""
    home = Home(tuple(target.parent), f"conformance_{_RUN}_{next(_numbers)}")
    ns.create_namespace(CreateNamespaceRequest(id=home.id))
    return home


@pytest.fixture
def table(ns: LanceNamespace, home: Home) -> list[str]:
    """The id of a table with three rows."""
    ns.create_table(CreateTableRequest(id=home.table("t")), stream(ROWS))
    return home.table("t")


def _remove(client: LanceNamespace, id: list[str]) -> None:
    try:
        tables = client.list_tables(ListTablesRequest(id=id)).tables
        for name in tables:
            _drop(client, [*id, name])
        for name in client.list_namespaces(ListNamespacesRequest(id=id)).namespaces:
            _remove(client, [*id, name])
    except (NamespaceNotFoundError, InvalidInputError):
        # It was not created, perhaps because its catalog refuses such an id.
        return
    except UnsupportedOperationError:
        pass
    try:
        client.drop_namespace(DropNamespaceRequest(id=id))
    except NamespaceNotFoundError:
        return


def _drop(client: LanceNamespace, id: list[str]) -> None:
    try:
        client.drop_table(DropTableRequest(id=id))
    except TableNotFoundError:
        return
    except LanceNamespaceError:
        client.deregister_table(DeregisterTableRequest(id=id))
