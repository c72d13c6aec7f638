"""Changes whose answer is lost: looked up and not sent again, or reported as in doubt, on each catalog."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.support.errors import catch
from tests.unit.backends.conftest import QUICK, create_server, list_properties

pytestmark = pytest.mark.glue

OPERATIONS = ("declare_table", "create_namespace", "deregister_table", "drop_namespace")
HTTP = dict(zip(OPERATIONS, ("POST", "POST", "DELETE", "DELETE"), strict=True))
CALLS: Mapping[str, Mapping[str, str]] = {
    "glue": dict(zip(OPERATIONS, ("CreateTable", "CreateDatabase", "DeleteTable", "DeleteDatabase"), strict=True)),
    "hive3": dict(zip(OPERATIONS, ("create_table", "create_database", "drop_table", "drop_database"), strict=True)),
}
"""The calls of catalogs without HTTP."""
PARENTS: Mapping[str, list[str]] = {"glue": [], "hive3": ["hive"], "iceberg": [], "polaris": ["cat"], "unity": ["main"]}
FOUND = {(impl, operation) for impl in PARENTS for operation in OPERATIONS if impl not in ("iceberg", "polaris")}
FOUND |= {("iceberg", "declare_table"), ("polaris", "declare_table")}
"""Changes whose result is looked up; those of others stay in doubt."""
CASES = [(impl, how) for impl in PARENTS for how in ("cut", 500, 502, 503, 504, "malformed")]
CASES = [case for case in CASES if case[0] not in CALLS or case[1] == "cut"]

When = Literal["before", "after"]


class Catalog:
    """A server, a namespace connected to it, and changes of a table and of a namespace."""

    def __init__(self, impl: str, server: Any, ns: AsyncNamespace) -> None:
        self.impl, self.server, self.ns = impl, server, ns

    def id(self, operation: str) -> list[str]:
        return [*PARENTS[self.impl], *(["a", "t"] if operation.endswith("table") else ["new"])]

    async def change(self, operation: str, **fields: Any) -> Any:
        return await getattr(self.ns, operation)(self.id(operation), **fields)

    def lose(self, operation: str, how: str | int, when: When) -> None:
        """Loses the next answer, before or after the change takes effect."""
        if self.impl in CALLS:
            self.server.cut(f"^{CALLS[self.impl][operation]}", when=when)
        elif how == "cut":
            self.server.cut(match=HTTP[operation], when=when)
        elif how == "malformed":
            self.server.reply("{", match=HTTP[operation], when=when)
        else:
            self.server.fail(how, match=HTTP[operation], when=when)

    def count(self, operation: str) -> int:
        if self.impl in CALLS:
            return int(self.server.calls.count(CALLS[self.impl][operation]))
        return sum(request.method == HTTP[operation] for request in self.server.requests)

    async def describe(self, operation: str) -> Any:
        return await getattr(self.ns, f"describe_{operation.partition('_')[2]}")(self.id(operation))


@pytest.fixture
async def catalog(impl: str, tmp_path: Path) -> AsyncIterator[Catalog]:
    server = FakeGlue() if impl == "glue" else FakeHive(tmp_path) if impl == "hive3" else create_server(impl)
    with server:
        if impl in CALLS:
            server.add_database("" if impl == "glue" else "hive", "a")
        root = {} if impl == "hive3" else {"root": "s3://b/r"}
        properties = {**list_properties(impl, server), **root, **QUICK}
        async with AsyncNamespace.connect(impl, properties) as ns:
            yield Catalog(impl, server, ns)


@pytest.mark.parametrize(("impl", "how"), CASES)
@pytest.mark.parametrize("operation", OPERATIONS[:2])
async def test_creation(catalog: Catalog, how: str | int, operation: str) -> None:
    catalog.lose(operation, how, "before")
    error = err.InternalError if how in (500, "malformed") else err.ServiceUnavailableError
    raised = await catch(error, catalog.change(operation), "whether it took effect is unknown")
    assert raised.type is error and "$".join(catalog.id(operation)) in str(raised.value)
    assert not isinstance(how, int) or f"HTTP {how}" in str(raised.value)
    assert not await catalog.ns.exists(catalog.id("declare_table")) and catalog.count(operation) == 1
    properties = {"k": "v", "doc": "d"}
    catalog.lose(operation, how, "after")
    if (catalog.impl, operation) in FOUND:
        created = await catalog.change(operation, properties=properties)
        described = await catalog.describe(operation)
        assert properties.items() <= created.properties.items() <= described.properties.items()
        assert operation == "create_namespace" or created.location == described.location
    else:
        await catch(error, catalog.change(operation), "whether it took effect is unknown")
        assert await catalog.describe(operation)
    assert catalog.count(operation) == 2


@pytest.mark.parametrize(("impl", "how"), CASES)
@pytest.mark.parametrize("operation", OPERATIONS[2:])
async def test_removal(catalog: Catalog, how: str | int, operation: str) -> None:
    create = "declare_table" if operation == "deregister_table" else "create_namespace"
    missing = (err.TableNotFoundError, err.NamespaceNotFoundError)
    await catalog.change(create)
    catalog.server.clear()
    catalog.lose(operation, how, "before")
    error = err.InternalError if how in (500, "malformed") else err.ServiceUnavailableError
    await catch(error, catalog.change(operation), "whether it took effect is unknown")
    assert await catalog.describe(operation) and catalog.count(operation) == 1
    catalog.lose(operation, how, "after")
    if (catalog.impl, operation) in FOUND:
        await catalog.change(operation)
    else:
        await catch(error, catalog.change(operation), "whether it took effect is unknown")
    await catch(missing, catalog.describe(operation))
    assert catalog.count(operation) == 2


@pytest.mark.parametrize(("impl", "operation"), sorted(FOUND & {(it, op) for it in PARENTS for op in OPERATIONS[:2]}))
async def test_object_of_another_client(catalog: Catalog, operation: str) -> None:
    taken = (err.TableAlreadyExistsError, err.NamespaceAlreadyExistsError)
    others: dict[str, Any]
    for others in ({"k": "other"}, {"k": "v", "doc": "another"}, {"k": "v", "more": "1"}, {}):
        await catalog.change(operation, properties=others)
        catalog.lose(operation, "cut", "before")
        await catch(taken, catalog.change(operation, properties={"k": "v"}), "created by another")
        if operation == "declare_table" and catalog.impl != "hive3":
            catalog.lose(operation, "cut", "before")
            other = catalog.change(operation, properties=others, location="s3://b/other")
            await catch(taken, other, "created by another")
        await catalog.change(OPERATIONS[OPERATIONS.index(operation) + 2])
