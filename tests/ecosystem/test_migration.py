"""Programs for lance-namespace-impls give the same answers after they were moved by the code of the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance_namespace
import lance_namespace as spec
import lance_namespace_impls  # noqa: F401  # it registers the names of its classes
import pytest

from lance_ns_async import Namespace
from tests.documentation.pages import Page
from tests.ecosystem.catalogs import Start
from tests.ecosystem.pages_elsewhere import Elsewhere
from tests.fakes.http import Forwarder
from tests.fakes.polaris import FakePolaris
from tests.fakes.server import Answer, Received
from tests.fakes.unity import FakeUnity
from tests.servers.hive import hive
from tests.servers.iceberg_rest import nessie

# The peer leaves its connections to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@dataclass(frozen=True)
class Old:
    """A catalog as a program for lance-namespace-impls names it."""

    impl: str
    properties: Mapping[str, str]
    above: tuple[str, ...]  # The names above a namespace for tables
    folder: str  # A location for tables

    @property
    def first(self) -> str | None:
        return self.above[0] if self.above else None


def code() -> Mapping[str, Callable[..., Any]]:
    source = next(it.source for it in Page("migrate.md").blocks() if it.language == "python")
    session: dict[str, Any] = {}
    exec(source, session)
    return session


def peer(old: Old) -> Any:
    return lance_namespace.connect(old.impl, dict(old.properties))


class Moved:
    """Our namespace, which a program with the ids of the peer calls."""

    def __init__(self, old: Old) -> None:
        page = code()
        self._impl = old.impl
        self._namespace, self._table = page["moved_namespace"], page["moved_table"]
        self.ours = Namespace.connect(*page["moved"](old.impl, old.properties, old.first))

    def __getattr__(self, operation: str) -> Callable[[Any], Any]:
        move = self._table if operation.endswith("_table") else self._namespace
        call = getattr(self.ours, operation)
        return lambda request: call(request.model_copy(update={"id": move(self._impl, request.id)}))


def walk(namespace: Any, old: Old, name: str) -> Mapping[str, str]:
    """Returns the answers to the calls of a program, in a namespace of its own; an error is its class."""
    home = [*old.above, name]
    orders, stock = [*home, "orders"], [*home, "stock"]
    at = f"{old.folder}/{name}-orders"
    create = spec.CreateNamespaceRequest(id=home, properties={"owner": "ada"})
    declare = spec.DeclareTableRequest(id=orders, location=at, properties={"team": "data"})
    answers = {
        "create": outcome(lambda: namespace.create_namespace(create) and None),
        "create again": outcome(lambda: namespace.create_namespace(create)),
        "namespaces": outcome(lambda: name in listed(namespace, old)),
        "describe home": outcome(
            lambda: namespace.describe_namespace(spec.DescribeNamespaceRequest(id=home)).properties["owner"]
        ),
        "declare": outcome(lambda: table(namespace.declare_table(declare))),
        "declare again": outcome(lambda: namespace.declare_table(declare)),
        "declare without a location": outcome(
            lambda: bool(namespace.declare_table(spec.DeclareTableRequest(id=stock)).location)
        ),
        "list": outcome(lambda: sorted(namespace.list_tables(spec.ListTablesRequest(id=home)).tables)),
        "describe": outcome(lambda: table(namespace.describe_table(spec.DescribeTableRequest(id=orders)))),
        "describe a missing table": outcome(
            lambda: namespace.describe_table(spec.DescribeTableRequest(id=[*home, "nothing"]))
        ),
        "drop a full namespace": outcome(lambda: namespace.drop_namespace(spec.DropNamespaceRequest(id=home))),
        "deregister": outcome(lambda: table(namespace.deregister_table(spec.DeregisterTableRequest(id=orders)))),
        "deregister again": outcome(lambda: namespace.deregister_table(spec.DeregisterTableRequest(id=orders))),
        "deregister the other": outcome(
            lambda: namespace.deregister_table(spec.DeregisterTableRequest(id=stock)) and None
        ),
        "list nothing": outcome(lambda: namespace.list_tables(spec.ListTablesRequest(id=home)).tables),
        "drop": outcome(lambda: namespace.drop_namespace(spec.DropNamespaceRequest(id=home)) and None),
        "describe no home": outcome(lambda: namespace.describe_namespace(spec.DescribeNamespaceRequest(id=home))),
    }
    # The locations contain the name of the namespace, which is the only difference between two walks.
    return {step: str(answer).replace(name, "home") for step, answer in answers.items()}


def listed(namespace: Any, old: Old) -> list[str]:
    names = namespace.list_namespaces(spec.ListNamespacesRequest(id=[*old.above])).namespaces
    return [name.rpartition(".")[2] for name in names]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def errors(impl: str) -> Mapping[str, str]:
    """Returns the errors of the peer by the names of ours, from the table of the page."""
    column = {"glue": 1, "hive2": 2, "hive3": 2}.get(impl, 3)
    rows = [[cell.strip("`") for cell in row] for row in Elsewhere("migrate.md", "").table("situation")]
    return {row[4]: row[column] for row in rows}


def table(answer: Any) -> tuple[str, Mapping[str, str]]:
    """Returns location and properties of a table, without the marks and bookkeeping of a package or a server."""
    # A Hive Metastore writes a URI of the file system with one slash.
    location = answer.location.replace("file:///", "file:/")
    return location, {key: value for key, value in answer.properties.items() if key == "team"}


@contextmanager
def in_glue(directory: Path, start: Start) -> Iterator[Old]:
    given = start("glue")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_CA_BUNDLE", given["ca_bundle"])
        kept = {key: given[key] for key in ("endpoint", "region", "access_key_id", "secret_access_key")}
        yield Old("glue", {**kept, "root": directory.as_uri(), "retry_mode": "standard"}, (), directory.as_uri())


@contextmanager
def in_hive2(directory: Path, start: Start) -> Iterator[Old]:
    with hive(directory / "hive", "2.3.9") as server:
        yield old_hive("hive2", server.uri, directory)


@contextmanager
def in_hive3(directory: Path, start: Start) -> Iterator[Old]:
    yield old_hive("hive3", start("hive3")["uri"], directory, "hive")


def old_hive(impl: str, uri: str, directory: Path, *above: str) -> Old:
    root = (directory / "tables").as_uri()
    return Old(impl, {"uri": uri, "root": root, "client.pool-size": "2"}, above, root)


class Prefixed(Forwarder):
    """Passes requests to an Iceberg catalog, at `/v1/lake` in place of `/v1`, as its configuration says."""

    def handle(self, request: Received) -> Answer:
        path = request.path.replace("/v1/lake/", "/v1/")
        headers = {"Content-Type": "application/json"}
        response = self._target.request(request.method, path, content=request.body, headers=headers)
        if not path.startswith("/v1/config"):
            return Answer(response.status_code, response.content, headers)
        return Answer.of({**response.json(), "defaults": {"prefix": "lake"}})


@contextmanager
def in_iceberg(directory: Path, start: Start) -> Iterator[Old]:
    """Provides the reference server below a prefix, because the peer calls no server without one."""
    with Prefixed(start("iceberg")["endpoint"]) as prefixed:
        properties = {"endpoint": prefixed.url, "root": directory.as_uri(), "read_timeout": "20000"}
        yield Old("iceberg", properties, ("lake",), directory.as_uri())


@contextmanager
def in_polaris(directory: Path, start: Start) -> Iterator[Old]:
    with FakePolaris(base=directory.as_uri()) as server:
        server.add_catalog("lake")
        properties = {
            "polaris.endpoint": server.endpoint,
            "polaris.root": directory.as_uri(),
            "polaris.auth_token": server.token(),
        }
        yield Old("polaris", properties, ("lake",), directory.as_uri())


@contextmanager
def in_unity(directory: Path, start: Start) -> Iterator[Old]:
    with FakeUnity(catalog="lake", dialect="0.4.0") as server:
        properties = {
            "unity.endpoint": f"{server.endpoint}/api/2.1",
            "unity.root": directory.as_uri(),
            "unity.read_timeout_millis": "20000",
        }
        yield Old("unity", properties, ("lake",), directory.as_uri())


CATALOGS: Mapping[str, Callable[[Path, Start], AbstractContextManager[Old]]] = {
    "glue": in_glue,
    "hive2": in_hive2,
    "hive3": in_hive3,
    "iceberg": in_iceberg,
    "polaris": in_polaris,
    "unity": in_unity,
}

REAL = pytest.mark.integration
# The classes for Hive 2 are those for Hive 3 without catalogs.
MARKS = {"hive2": [REAL, pytest.mark.thorough], "hive3": [REAL], "iceberg": [REAL]}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=MARKS.get(name, [])) for name in CATALOGS])
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, start: Start) -> Iterator[Old]:
    with CATALOGS[request.param](tmp_path_factory.mktemp(request.param), start) as old:
        yield old


def test_a_moved_program_gives_the_same_answers(old: Old) -> None:
    moved = Moved(old)
    before, after = walk(peer(old), old, "before"), walk(moved, old, "after")
    theirs = errors(old.impl)
    assert before == {step: theirs.get(answer, answer) for step, answer in after.items()}
    assert {error for error in theirs if error.endswith("Error")} <= set(after.values())
    moved.ours.close()


def test_each_package_reads_the_tables_of_the_other(old: Old) -> None:
    theirs, moved = peer(old), Moved(old)
    home = [*old.above, "shared"]
    theirs.create_namespace(spec.CreateNamespaceRequest(id=home))
    for package, name in ((theirs, "old"), (moved, "new")):
        at = f"{old.folder}/{name}"
        package.declare_table(spec.DeclareTableRequest(id=[*home, name], location=at, properties={"team": name}))
    for package in (theirs, moved):
        assert sorted(package.list_tables(spec.ListTablesRequest(id=home)).tables) == ["new", "old"]
    for name in ("old", "new"):
        request = spec.DescribeTableRequest(id=[*home, name])
        assert table(theirs.describe_table(request)) == table(moved.describe_table(request))
    for package, name in ((moved, "old"), (theirs, "new")):
        package.deregister_table(spec.DeregisterTableRequest(id=[*home, name]))
    moved.drop_namespace(spec.DropNamespaceRequest(id=home))
    moved.ours.close()


@pytest.mark.integration
@pytest.mark.thorough
def test_both_read_the_tables_of_a_nessie(tmp_path: Path) -> None:
    """Nessie rejects the tables that the peer declares, so they are declared here."""
    with nessie(tmp_path) as server:
        properties = {"endpoint": server.endpoint, "root": server.properties["root"]}
        old = Old("iceberg", properties, ("warehouse",), server.properties["root"])
        theirs, moved = peer(old), Moved(old)
        home = ["warehouse", "sales"]
        theirs.create_namespace(spec.CreateNamespaceRequest(id=home))
        orders = [*home, "orders"]
        moved.declare_table(spec.DeclareTableRequest(id=orders, properties={"team": "data"}))
        for package in (theirs, moved):
            assert listed(package, old) == ["sales"]
            assert package.list_tables(spec.ListTablesRequest(id=home)).tables == ["orders"]
        request = spec.DescribeTableRequest(id=orders)
        assert table(theirs.describe_table(request)) == table(moved.describe_table(request))
        theirs.deregister_table(spec.DeregisterTableRequest(id=orders))
        assert moved.list_tables(spec.ListTablesRequest(id=home)).tables == []
        moved.drop_namespace(spec.DropNamespaceRequest(id=home))
        assert theirs.list_namespaces(spec.ListNamespacesRequest(id=["warehouse"])).namespaces == []
        moved.ours.close()
