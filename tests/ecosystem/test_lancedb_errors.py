"""Errors in lancedb: their classes and messages."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lance_namespace.errors as err
import lancedb
import pyarrow as pa
import pytest

from tests.ecosystem.catalogs import Catalog, on_each_kind
from tests.ecosystem.lancedb_tables import ROWS, async_connected, connected
from tests.fakes.glue import FakeGlue
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.polaris import FakePolaris
from tests.fakes.unity import FakeUnity
from tests.servers.process import LOOPBACK, free_port

NESTING = ("dir", "iceberg", "lakekeeper", "polaris", "rest")
"""The catalogs whose error for a table does not say that the namespace is missing."""

ROOTED = ("dir", "rest")  # The catalogs that can have tables in the root
CASCADING = ("hive2", "hive3", "unity")  # The catalogs that can drop a namespace with its content


@dataclass(frozen=True, slots=True)
class Target:
    """A connection to a catalog that contains only one table, `t`, in a namespace."""

    catalog: Catalog
    db: Any
    home: list[str]

    @property
    def name(self) -> str:
        return "$".join(self.home)

    @property
    def unnamed(self) -> list[str]:
        return [*self.home[:-1], ""]

    @property
    def nowhere(self) -> list[str]:
        return [*self.catalog.above, "nowhere"]

    @property
    def lost(self) -> str:
        return "$".join(self.nowhere)


_MISSING = "TableNotFoundError: Table not found: {g.name}$nope ("
_LOST = "NamespaceNotFoundError: Namespace not found: {g.lost} ("
CALLS: dict[str, tuple[Callable[[Target], Any], type[Exception], str]] = {
    "open a missing table": (
        lambda g: g.db.open_table("nope", namespace_path=g.home),
        err.TableNotFoundError,
        "Table not found: {g.name}$nope",
    ),
    "drop a missing table": (lambda g: g.db.drop_table("nope", namespace_path=g.home), RuntimeError, _MISSING),
    "rename a missing table": (
        lambda g: g.db.rename_table("nope", "u", cur_namespace_path=g.home),
        RuntimeError,
        _MISSING,
    ),
    "create a table that is there": (
        lambda g: g.db.create_table("t", ROWS, namespace_path=g.home),
        RuntimeError,
        "TableAlreadyExistsError: Table already exists: {g.name}$t (",
    ),
    "create in a missing namespace": (
        lambda g: g.db.create_table("t", ROWS, namespace_path=g.nowhere),
        RuntimeError,
        _LOST,
    ),
    "list a missing namespace": (lambda g: g.db.list_tables(g.nowhere), RuntimeError, _LOST),
    "list below a missing namespace": (lambda g: g.db.list_namespaces(g.nowhere), RuntimeError, _LOST),
    "describe a missing namespace": (lambda g: g.db.describe_namespace(g.nowhere), RuntimeError, _LOST),
    "drop a missing namespace": (lambda g: g.db.drop_namespace(g.nowhere), RuntimeError, _LOST),
    "create a namespace that is there": (
        lambda g: g.db.create_namespace(g.home),
        RuntimeError,
        "NamespaceAlreadyExistsError: Namespace already exists: {g.name} (",
    ),
    "drop a namespace that holds a table": (
        lambda g: g.db.drop_namespace(g.home),
        err.NamespaceNotEmptyError,
        "NamespaceNotEmptyError: Namespace not empty: {g.name} (",
    ),
    "a namespace without a name": (
        lambda g: g.db.create_namespace([*g.home[:-1], ""]),
        RuntimeError,
        "InvalidInputError: namespace id {g.unnamed}: every name must be a non-empty string",
    ),
    "a table's name that lancedb refuses": (
        lambda g: g.db.create_table("a/b", ROWS, namespace_path=g.home),
        ValueError,
        'Invalid table name ("a/b")',
    ),
    "a mode that lancedb does not know": (
        lambda g: g.db.create_namespace(g.home, mode="new"),
        ValueError,
        "Invalid create namespace mode 'new'",
    ),
    "a page of nothing": (
        lambda g: g.db.list_tables(g.home, limit=0),
        RuntimeError,
        "InvalidInputError: limit 0: must be at least 1",
    ),
    "a page token of another listing": (
        lambda g: g.db.list_tables(g.home, page_token="t"),
        RuntimeError,
        "InvalidInputError: page_token 't': not one of this listing",
    ),
    "a version that the table has not": (
        lambda g: g.db.open_table("t", namespace_path=g.home, version=99),
        ValueError,
        "Version 99 no longer exists",
    ),
    "a branch that the table has not": (
        lambda g: g.db.open_table("t", namespace_path=g.home, branch="nope"),
        RuntimeError,
        "/tree/nope/_versions",
    ),
    "SQL": (lambda g: g.db.execute_query("select 1"), NotImplementedError, "SQL is not supported"),
}
"""The calls of lancedb, their errors, and the format of the messages."""


@pytest.fixture
def target(catalog: Catalog, home: list[str]) -> Iterator[Target]:
    with connected(catalog) as db:
        db.create_table("t", ROWS, namespace_path=home)
        yield Target(catalog, db, home)


@pytest.mark.parametrize("what", CALLS)
def test_sync_and_async_users_see_the_same(target: Target, what: str) -> None:
    call, expected, words = CALLS[what]
    with pytest.raises(expected, match=re.escape(words.format(g=target))) as raised:
        call(target)
    assert type(raised.value) is expected

    async def again() -> None:
        async with async_connected(target.catalog) as db:
            answer = call(Target(target.catalog, db, target.home))
            assert inspect.isawaitable(answer)
            await answer

    with pytest.raises(expected, match=re.escape(words.format(g=target))) as raised:
        asyncio.run(again())
    assert type(raised.value) is expected


@on_each_kind
def test_a_table_in_a_missing_namespace_is_not_found_or_its_namespace_is_not(target: Target) -> None:
    id = [*target.nowhere, "nope"]
    if target.catalog.impl in NESTING:
        with pytest.raises(err.TableNotFoundError, match=re.escape(f"Table not found: {'$'.join(id)}")):
            target.db.open_table("nope", namespace_path=target.nowhere)
        assert not target.db.table_exists(id)
        return
    words = re.escape(f"Namespace not found: {target.lost} (")
    with pytest.raises(RuntimeError, match=f"NamespaceNotFoundError: {words}"):
        target.db.open_table("nope", namespace_path=target.nowhere)
    with pytest.raises(err.NamespaceNotFoundError, match=f"^{words}"):
        target.db.table_exists(id)


@on_each_kind
def test_a_table_too_high_up(target: Target) -> None:
    if target.catalog.impl in ROOTED:
        assert target.db.create_table(f"t_{target.home[-1]}", ROWS).count_rows() == 10
        return
    with pytest.raises(RuntimeError, match=r"InvalidInputError: table id \['t'\]: this catalog requires .*, not 0"):
        target.db.create_table("t", ROWS)
    with pytest.raises(err.InvalidInputError, match=r"^table id \['t'\]: this catalog requires .*, not 0$"):
        target.db.table_exists(["t"])


@on_each_kind
def test_a_namespace_goes_with_its_tables_where_the_catalog_can(target: Target) -> None:
    if target.catalog.impl in CASCADING:
        target.db.drop_namespace(target.home, behavior="cascade")
        assert not target.db.namespace_exists(target.home)
        return
    # lancedb searches for the words of a server's error, which a gateway repeats in its own.
    with pytest.raises(
        (RuntimeError, err.NamespaceNotEmptyError), match="behavior 'Cascade': this catalog drops empty"
    ):
        target.db.drop_namespace(target.home, behavior="cascade")


def test_a_table_whose_data_never_came_stays_declared(target: Target) -> None:
    schema = pa.schema({"id": pa.int64()})

    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise OSError("the source is gone")

    def create(name: str, **options: Any) -> Any:
        return target.db.create_table(name, [{"id": 1}], namespace_path=target.home, **options)

    with pytest.raises(RuntimeError, match="the source is gone"):
        reader = pa.RecordBatchReader.from_batches(schema, broken())
        target.db.create_table("u", reader, schema=schema, namespace_path=target.home)
    assert target.db.list_tables(target.home).tables == ["t", "u"]
    with pytest.raises(err.TableNotFoundError, match="Table not found"):
        target.db.open_table("u", namespace_path=target.home)
    with pytest.raises(RuntimeError, match="TableAlreadyExistsError: Table already exists"):
        create("u")
    with pytest.raises(ValueError, match="Table 'u' was not found"):
        create("u", exist_ok=True)
    assert create("u", mode="overwrite").count_rows() == 1


def test_what_is_wrong_with_properties_is_reported_immediately(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match=f"{catalog.impl} properties: max_retires: unknown, did you mean max_retries?"):
        lancedb.connect_namespace(catalog.class_path, {**catalog.properties, "max_retires": "1"})
    with pytest.raises(ValueError, match="max_retires: unknown"):
        lancedb.connect_namespace_async(catalog.class_path, {**catalog.properties, "max_retires": "1"})


WRONG = "h0p3ful"  # A secret that no server accepts
PORT = "{port}"
DOWN = {
    "glue": {"region": "us-east-1", "access_key_id": "key", "secret_access_key": WRONG, "endpoint": "http://" + PORT},
    "hive3": {"uri": "thrift://" + PORT},
    "iceberg": {"endpoint": "http://" + PORT},
    "polaris": {"endpoint": "http://" + PORT, "credential": f"root:{WRONG}"},
    "unity": {"endpoint": "http://" + PORT, "catalog": "lake"},
}


@contextmanager
def _glue() -> Iterator[tuple[Any, Catalog]]:
    with FakeGlue() as server:
        server.add_database("", "sales")
        yield server, Catalog("glue", server.properties)


@contextmanager
def _iceberg() -> Iterator[tuple[Any, Catalog]]:
    with FakeIceberg(token="g00d") as server:
        yield server, Catalog("iceberg", {"endpoint": server.endpoint, "auth_token": "g00d"})


@contextmanager
def _polaris() -> Iterator[tuple[Any, Catalog]]:
    with FakePolaris(powerless={"intern": "s3cret"}) as server:
        server.add_catalog("lake")
        yield server, Catalog("polaris", server.properties, ("lake",))


@contextmanager
def _unity() -> Iterator[tuple[Any, Catalog]]:
    with FakeUnity(catalog="lake", authorization=["g00d"]) as server:
        yield server, Catalog("unity", server.properties, ("lake",))


SERVERS = {"glue": _glue, "iceberg": _iceberg, "polaris": _polaris, "unity": _unity}


def check(catalog: Catalog, properties: dict[str, str], error: type[err.LanceNamespaceError], words: str) -> None:
    """Checks that each operation of lancedb fails with these words, and with this class if lancedb keeps classes."""
    home = [*catalog.above, "sales"]
    calls: list[Callable[[Any], Any]] = [
        lambda db: db.open_table("t", namespace_path=home),
        lambda db: db.create_table("t", ROWS, namespace_path=home),
        lambda db: db.create_table("t", ROWS, namespace_path=home, exist_ok=True),
        lambda db: db.create_table("t", ROWS, namespace_path=home, mode="overwrite"),
        lambda db: db.drop_table("t", namespace_path=home),
        lambda db: db.list_tables(home),
        lambda db: db.describe_namespace(home),
    ]
    with connected(catalog, max_retries="1", backoff_initial="1ms", **properties) as db:
        for call in calls:
            with pytest.raises(RuntimeError, match=re.escape(f"{error.__name__}: {words}: ")) as raised:
                call(db)
            assert type(raised.value) is RuntimeError and WRONG not in str(raised.value)
        for exists, id in ((db.namespace_exists, home), (db.table_exists, [*home, "t"])):
            with pytest.raises(error, match=f"^{words}: "):
                exists(id)


@pytest.mark.parametrize("impl", DOWN)
def test_a_server_that_is_down(impl: str) -> None:
    place = f"{LOOPBACK}:{free_port()}"
    properties = {key: value.replace(PORT, place) for key, value in DOWN[impl].items()}
    above = ("lake",) if impl in ("hive3", "polaris", "unity") else ()
    check(Catalog(impl, properties, above), {}, err.ServiceUnavailableError, "Service unavailable")


@pytest.mark.parametrize("impl", ["iceberg", "polaris", "unity"])
def test_a_token_that_the_server_does_not_know(impl: str) -> None:
    wrong = {"credential": f"root:{WRONG}"} if impl == "polaris" else {"auth_token": WRONG}
    with SERVERS[impl]() as (_, catalog):
        check(catalog, wrong, err.UnauthenticatedError, "Unauthenticated")


def test_a_principal_who_may_not_and_an_aws_key_that_is_over() -> None:
    with _polaris() as (server, catalog):
        # Missing objects are reported to all clients.
        server.add_table("lake", ["sales"], "t")
        check(catalog, {"credential": "intern:s3cret"}, err.PermissionDeniedError, "Permission denied")
    with _glue() as (server, catalog):
        server.deny()
        check(catalog, {}, err.PermissionDeniedError, "Permission denied")
        server.heal()
        server.expire(catalog.properties["access_key_id"])
        check(catalog, {}, err.UnauthenticatedError, "Unauthenticated")


@pytest.mark.parametrize("impl", ["iceberg", "unity"])
def test_a_server_that_is_too_busy(impl: str) -> None:
    with SERVERS[impl]() as (server, catalog):
        server.fail(429, times=None)
        check(catalog, {}, err.ThrottlingError, "Throttled")


def test_reads_are_retried_and_changes_are_not() -> None:
    with _unity() as (server, catalog), connected(catalog, backoff_initial="1ms") as db:
        db.create_namespace(["lake", "sales"])
        server.fail(503)
        assert db.list_tables(["lake", "sales"]).tables == []
        server.fail(503)
        with pytest.raises(RuntimeError, match=r"ServiceUnavailableError: .*; whether it took effect is unknown\)"):
            db.create_namespace(["lake", "costs"])
