"""A table that is dropped with a retention comes back as it was, on every catalog."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.fleet import Row, dropped, purge, undrop
from tests.contract.conftest import Children, Parent
from tests.contract.site import Site
from tests.support.errors import outcomes_of


@pytest.fixture
async def namespace(ns: AsyncNamespace, site: Site) -> AsyncNamespace:
    if not isinstance(ns, AsyncNamespace):
        pytest.skip("the functions take an AsyncNamespace")
    return ns


async def rows(ns: AsyncNamespace, under: str, parent: Parent) -> list[Row]:
    """Returns the rows of the dropped tables of a namespace; the folder may have those of others, too."""
    report = await dropped(ns, under=under)
    assert not report.problems
    return [row for row in report.rows if isinstance(row.id, TableId) and row.id.parent == parent.id]


async def create(ns: AsyncNamespace, id: list[str]) -> str:
    """Creates a table with two versions, a tag, a branch and an index; returns the folder of its namespace."""
    await ns.write(id, pa.table({"id": range(4)}))
    await ns.write(id, pa.table({"id": [9]}), mode="append")
    await ns.create_table_tag(id, tag="first", version=1)
    await ns.create_table_scalar_index(id, column="id", index_type="BTREE", name="by_id")
    location = (await ns.describe_table(id)).location
    assert location is not None
    return location.rstrip("/").rpartition("/")[0]


async def test_a_dropped_table_comes_back_as_it_was(namespace: AsyncNamespace, parent: Parent) -> None:
    t = parent.table("t")
    under = await create(namespace, t)
    before = await namespace.describe_table(t)
    await namespace.drop_table(t, keep="7d")
    assert "t" not in (await namespace.list_tables(list(parent.id))).tables
    with pytest.raises(err.TableNotFoundError):
        await namespace.drop_table(t, keep="7d")
    (row,) = await rows(namespace, under, parent)
    assert (row.id, row.outcome, row.fields["rows"]) == (parent.tables("t")[0], "dropped", 5)
    assert not (await purge(namespace, under=under)).rows

    await undrop(namespace, t, under=under)
    after = await namespace.describe_table(t)
    own = namespace.session.backend.capabilities.own_properties
    described = [
        (it.location, {key: value for key, value in (it.properties or {}).items() if not _matches(key, own)})
        for it in (before, after)
    ]
    assert described[0] == described[1]
    assert (await namespace.count_table_rows(t)).count == 5
    assert [it.version for it in (await namespace.list_table_tags(t)).tags.values()] == [1]
    assert [it.index_name for it in (await namespace.list_table_indices(t)).indexes] == ["by_id"]
    await namespace.write(t, pa.table({"id": [10]}), mode="append")
    assert not await rows(namespace, under, parent)
    with pytest.raises(err.TableNotFoundError):
        await undrop(namespace, str(after.location))


def _matches(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


async def test_a_table_comes_back_under_another_name(namespace: AsyncNamespace, parent: Parent) -> None:
    if not parent.id:
        pytest.skip("the location of a table at the root is its name")
    t, other = parent.table("t"), parent.table("other")
    under = await create(namespace, t)
    location = str((await namespace.describe_table(t)).location)
    await namespace.drop_table(t, keep=3600)
    await namespace.write(t, pa.table({"id": [0]}))
    assert not (await rows(namespace, under, parent))[0].fields["name_is_free"]
    with pytest.raises(err.TableAlreadyExistsError, match="pass as_"):
        await undrop(namespace, location)
    await undrop(namespace, location, as_=other)
    assert (await namespace.count_table_rows(other)).count == 5
    assert not await rows(namespace, under, parent)
    with pytest.raises(err.TableNotFoundError):
        await undrop(namespace, location)


async def test_expired_tables_are_purged(namespace: AsyncNamespace, parent: Parent) -> None:
    t = parent.table("t")
    under = await create(namespace, t)
    location = str((await namespace.describe_table(t)).location)
    await namespace.drop_table(t, keep=0.000_001)
    assert [row.outcome for row in await rows(namespace, under, parent)] == ["expired"]
    assert [row.outcome for row in (await purge(namespace, under=under, dry_run=True)).rows] == ["purged"]
    assert not (await purge(namespace, under=under, older_than="1d")).rows
    assert [row.id for row in (await purge(namespace, under=under)).having("purged")] == parent.tables("t")
    with pytest.raises(err.TableNotFoundError):
        await undrop(namespace, location)
    await namespace.write(t, pa.table({"id": [1]}))
    assert (await namespace.count_table_rows(t)).count == 1


async def test_a_table_is_dropped_once_with_a_retention(namespace: AsyncNamespace, parent: Parent) -> None:
    t = parent.table("t")
    await create(namespace, t)
    errors = await outcomes_of(*(namespace.drop_table(t, keep="1d") for _ in range(3)))
    assert errors.count(None) == 1


async def test_a_table_is_brought_back_under_one_name(namespace: AsyncNamespace, parent: Parent) -> None:
    names = ("t", "u", "v") if parent.id else ("t", "t", "t")
    under = await create(namespace, t := parent.table("t"))
    location = str((await namespace.describe_table(t)).location)
    await namespace.drop_table(t, keep="1d")
    errors = await outcomes_of(*(undrop(namespace, location, as_=parent.table(name)) for name in names))
    assert errors.count(None) <= 1, "two tables would share the data"
    if None not in errors:
        await undrop(namespace, location, as_=t)
    assert not await rows(namespace, under, parent), errors


async def test_the_tables_of_a_namespace_that_is_dropped_come_back(
    namespace: AsyncNamespace, site: Site, children: Children
) -> None:
    if not site.can.cascades:
        pytest.skip("the catalog drops empty namespaces only")
    child = children.child("n")
    await namespace.create_namespace(child)
    await create(namespace, [*child, "t"])
    location = str((await namespace.describe_table([*child, "t"])).location)
    await namespace.drop_namespace(child, behavior="cascade", keep="1d")
    assert not await namespace.exists(NamespaceId(child))
    await undrop(namespace, location)
    assert (await namespace.count_table_rows([*child, "t"])).count == 5
