"""The backend for metastores without catalogs: ids that begin with the database, and calls without a catalog."""

from __future__ import annotations

from collections.abc import Iterator

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, TableId
from tests.fakes.hive3 import FakeHive
from tests.fakes.thrift_wire import Struct
from tests.support.errors import catch
from tests.support.hive import connected, create, declare, describe, drop, kept, namespaces, rename, tables


@pytest.fixture
def server() -> Iterator[FakeHive]:
    with FakeHive(version="2.3.9") as server:
        yield server


async def test_no_call_names_a_catalog(server: FakeHive) -> None:
    async with connected(server, impl="hive2") as ns:
        await ns.create_namespace(create("Sales", team="data"))
        await ns.declare_table(declare("sales", "Orders"))
        await ns.declare_table(declare("sales", "offers"))
        await ns.describe_tables([["sales", "orders"], ["sales", "offers"]])
        await ns.rename_table(rename("sales", "offers", to="bids"))
        assert await namespaces(ns) == ["default", "sales"] and await tables(ns, "sales") == ["bids", "orders"]
        await ns.drop_namespace(drop("sales", cascade=True))
        assert await namespaces(ns) == ["default"]
    assert not [method for method in server.calls if "catalog" in method]
    fields = {"create_database": 8, "create_table": 17, "get_table_req": 4, "get_table_objects_by_name_req": 4}
    for call in server.requests:
        first = call.arguments[1]
        if isinstance(first, Struct):
            assert fields[call.method] not in first, call
        else:
            assert "@" not in first and "#" not in first, call


async def test_the_root_contains_databases_and_no_others(server: FakeHive) -> None:
    async with connected(server, impl="hive2") as ns:
        assert (await kept(ns, "default"))["database.description"] == "Default Hive database"
        for call in (kept(ns, "none"), tables(ns, "none"), ns.describe_table(describe("none", "t"))):
            await catch(err.NamespaceNotFoundError, call, r"^Namespace not found: none ")
        with pytest.raises(err.TableNotFoundError, match=r"^Table not found: default\$t "):
            await ns.describe_table(describe("default", "t"))
        for id in (["t"], ["a", "b", "t"]):
            await catch(err.InvalidInputError, ns.describe_table(describe(*id)))
        await catch(err.InvalidInputError, ns.create_namespace(create("a", "b")))
        await catch(err.InvalidInputError, ns.drop_namespace(drop("default")), "Can not drop default database")


@pytest.mark.parametrize(
    ("id", "error", "message"),
    [
        (("d ", "t"), err.NamespaceNotFoundError, r"^Namespace not found: d  \(no metastore"),
        (("default", "t "), err.TableNotFoundError, r"^Table not found: default\$t  \(no metastore"),
    ],
)
async def test_ambiguous_names_are_not_found(
    server: FakeHive, id: tuple[str, str], error: type[Exception], message: str
) -> None:
    async with connected(server, impl="hive2") as ns:
        await catch(error, ns.describe_table(describe(*id)), message)
    assert server.calls == []


@pytest.mark.parametrize("id", [("d" * 129,), ("d-d",)])
async def test_a_database_is_checked_as_one(server: FakeHive, id: tuple[str]) -> None:
    async with connected(server, impl="hive2") as ns:
        await catch(err.InvalidInputError, ns.create_namespace(create(*id)), r"at most 128|is invalid")
    assert server.calls == []


async def test_tables_are_where_other_clients_put_them(server: FakeHive) -> None:
    async with connected(server, impl="hive2", unique_locations="false") as ns:
        place = (await ns.declare_table(declare("default", "Orders"))).location or ""
    assert place.endswith("/root/default.db/orders")


async def test_on_a_newer_server_it_has_the_databases_of_the_catalog_hive() -> None:
    with FakeHive() as server:
        server.add_catalog("lake")
        server.add_database("lake", "elsewhere")
        server.add_database("hive", "sales")
        server.add_table("hive", "sales", "orders")
        async with connected(server, impl="hive2") as old, connected(server) as new:
            assert await namespaces(old) == await namespaces(new, "hive") == ["default", "sales"]
            assert await tables(old, "sales") == ["orders"]
            there, here = await found(old, "sales", "orders"), await found(new, "hive", "sales", "orders")
            assert there == here


async def found(ns: AsyncNamespace, *id: str) -> str | None:
    """Returns the location of a table."""
    return (await ns.describe_table(describe(*TableId(id)))).location
