"""Errors in lancedb if a catalog is down, overloaded or rejects the login."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from lance_namespace.errors import (
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
)

from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.lancedb_tables import ROWS, connected
from tests.fakes.glue import FakeGlue
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.polaris import FakePolaris
from tests.fakes.unity import FakeUnity
from tests.servers.process import LOOPBACK, free_port

BRIEF = {"max_retries": "1", "backoff_initial": "1ms"}
WRONG = "h0p3ful"
"""A secret that no server accepts."""

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


def check(catalog: Catalog, properties: dict[str, str], error: type[LanceNamespaceError], words: str) -> None:
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
    with connected(catalog, **BRIEF, **properties) as db:
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
    check(Catalog(impl, properties, above), {}, ServiceUnavailableError, "Service unavailable")


@pytest.mark.parametrize("impl", ["iceberg", "polaris", "unity"])
def test_a_token_that_the_server_does_not_know(impl: str) -> None:
    wrong = {"credential": f"root:{WRONG}"} if impl == "polaris" else {"auth_token": WRONG}
    with SERVERS[impl]() as (_, catalog):
        check(catalog, wrong, UnauthenticatedError, "Unauthenticated")


def test_an_aws_key_that_is_over() -> None:
    with _glue() as (server, catalog):
        server.expire(catalog.properties["access_key_id"])
        check(catalog, {}, UnauthenticatedError, "Unauthenticated")


def test_a_principal_who_may_not() -> None:
    with _polaris() as (server, catalog):
        # Missing objects are reported to all clients.
        server.add_table("lake", ["sales"], "t")
        check(catalog, {"credential": "intern:s3cret"}, PermissionDeniedError, "Permission denied")
    with _glue() as (server, catalog):
        server.deny()
        check(catalog, {}, PermissionDeniedError, "Permission denied")


@pytest.mark.parametrize("impl", ["iceberg", "unity"])
def test_a_server_that_is_too_busy(impl: str) -> None:
    with SERVERS[impl]() as (server, catalog):
        server.fail(429, times=None)
        check(catalog, {}, ThrottlingError, "Throttled")


def test_reads_are_retried_and_changes_are_not() -> None:
    with _unity() as (server, catalog), connected(catalog, backoff_initial="1ms") as db:
        db.create_namespace(["lake", "sales"])
        server.fail(503)
        assert db.list_tables(["lake", "sales"]).tables == []
        server.fail(503)
        with pytest.raises(RuntimeError, match=r"ServiceUnavailableError: .*; whether it took effect is unknown\)"):
            db.create_namespace(["lake", "costs"])
