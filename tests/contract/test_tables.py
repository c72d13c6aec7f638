"""Tables: declared, described, registered, renamed and removed; and objects that are not Lance tables."""

from __future__ import annotations

import anyio
import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, TableId
from tests.contract.conftest import Parent
from tests.contract.site import Site
from tests.support.budget import with_usual
from tests.support.errors import catch

pytestmark = [pytest.mark.round_trip, pytest.mark.environment]

ODD = ["a b", "é", "日本", "a/b", "a%2Fb", "a.b", "..", ".", "a?b#c", "a'b", "~", "a@main", "`a`", "x" * 200]
"""Names that a catalog stores unchanged or refuses at once."""

DATA = pa.table({"id": [1, 2, 3]})


async def test_a_declared_table_is_described_as_declared(ns: AsyncNamespace, parent: Parent) -> None:
    declared = await ns.declare_table({"id": parent.table("t"), "properties": {"k": "v"}})
    result = await ns.describe_table({"id": parent.table("t")})
    assert declared.location is not None and result.location == declared.location
    assert declared.properties is not None and declared.properties["k"] == "v"
    assert result.properties is not None and result.properties["k"] == "v"
    assert result.managed_versioning is False and declared.managed_versioning is False
    assert result.storage_options in (None, {"k": "v"})  # some catalogs store in properties how a table is read
    assert result.is_only_declared is None


async def test_deregistering_leaves_the_data_and_dropping_removes_it(ns: AsyncNamespace, parent: Parent) -> None:
    left, removed = [await _written(ns, parent.table(name)) for name in ("t", "u")]
    answer = await ns.deregister_table({"id": parent.table("t")})
    assert answer.id == parent.table("t") and answer.location == left
    assert (await ns.drop_table({"id": parent.table("u")})).location == removed
    assert not await ns.exists(parent.table("t")) and not await ns.exists(parent.table("u"))
    assert lance.dataset(left).count_rows() == 3
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(removed)


async def test_dropping_takes_each_spelling_of_the_table(ns: AsyncNamespace, parent: Parent, site: Site) -> None:
    await _written(ns, parent.table("small"))
    if not site.can.folds_case:
        assert not await ns.exists(parent.table("SMALL"))
        return
    await ns.drop_table({"id": parent.table("SMALL")})
    assert not await ns.exists(parent.table("small"))


async def test_dropping_never_takes_another_table_along(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    location = await _written(ns, parent.table("t"))
    lance.dataset(location).create_branch("branch", 1)
    inner = f"{location}/inner"
    if not site.overlaps:
        with pytest.raises(err.InvalidInputError, match="above or below that of another table"):
            await ns.declare_table({"id": parent.table("inner"), "location": inner})
        return
    await ns.declare_table({"id": parent.table("inner"), "location": inner})
    lance.write_dataset(DATA, inner)
    await catch(err.InvalidTableStateError, ns.drop_table({"id": parent.table("t")}), "such as inner")
    assert await ns.exists(parent.table("t")) and lance.dataset(inner).count_rows() == 3
    await ns.drop_table({"id": parent.table("inner")})
    await ns.drop_table({"id": parent.table("t")})
    assert not await ns.exists(parent.table("t"))


async def test_registering_puts_a_table_back(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    location = await _written(ns, parent.table("t"))
    await ns.deregister_table({"id": parent.table("t")})
    if not site.frees_locations:
        with pytest.raises(err.InvalidInputError, match="a deleted table that can still be restored"):
            await ns.register_table({"id": parent.table("again"), "location": location})
        return
    answer = await ns.register_table({"id": parent.table("again"), "location": location})
    result = await ns.describe_table({"id": parent.table("again")})
    assert answer.location == result.location
    assert result.location is not None and lance.dataset(result.location).count_rows() == 3


async def test_registering_overwrites_only_on_request(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    if not site.frees_locations:
        pytest.skip("the location of the data stays taken")
    location = await _written(ns, parent.table("t"))
    await ns.declare_table({"id": parent.table("other")})
    await ns.deregister_table({"id": parent.table("t")})
    await catch(err.TableAlreadyExistsError, ns.register_table({"id": parent.table("other"), "location": location}))
    before = (await ns.describe_table({"id": parent.table("other")})).location
    try:
        await ns.register_table({"id": parent.table("other"), "location": location, "mode": "Overwrite"})
    except err.UnsupportedOperationError as e:
        # The table stays, and the proposed remedy works.
        assert "deregister it" in str(e) and f"register it at {location}" in str(e)
        assert (await ns.describe_table({"id": parent.table("other")})).location == before
        await ns.deregister_table({"id": parent.table("other")})
        await ns.register_table({"id": parent.table("other"), "location": location})
    result = await ns.describe_table({"id": parent.table("other")})
    assert result.location is not None and lance.dataset(result.location).count_rows() == 3


async def test_renaming_moves_the_registration_or_says_why_not(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    location = await _written(ns, parent.table("t"))
    await ns.declare_table({"id": parent.table("taken")})
    if not site.can.renames:
        with pytest.raises(
            err.UnsupportedOperationError, match=r"^Not supported: (rename_table|\S+ \(rename_table:)"
        ) as e:
            await ns.rename_table({"id": parent.table("t"), "new_table_name": "new"})
        assert site.impl == "rest" or (
            "deregister" in str(e.value) and "register" in str(e.value).replace("deregister", "")
        )
        return
    await catch(err.TableAlreadyExistsError, ns.rename_table({"id": parent.table("t"), "new_table_name": "taken"}))
    await ns.rename_table({"id": parent.table("t"), "new_table_name": "new"})
    result = await ns.describe_table({"id": parent.table("new")})
    assert result.location == location and not await ns.exists(parent.table("t"))


async def test_a_name_that_became_free_gets_no_hold_of_the_data(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    if not site.can.renames:
        return
    location = await _written(ns, parent.table("t"))
    await ns.rename_table({"id": parent.table("t"), "new_table_name": "new"})
    try:
        again = await ns.declare_table({"id": parent.table("t")})
        # A catalog may choose a separate location for each table.
        assert again.location != location
    except err.TableAlreadyExistsError as e:
        assert "there is data" in str(e) and not await ns.exists(parent.table("t"))
    assert lance.dataset(location).count_rows() == 3


async def test_another_format_is_no_lance_table(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    if site.plant_other is None:
        return
    id = parent.id.table("other")
    await anyio.to_thread.run_sync(site.plant_other, id)
    await ns.declare_table({"id": parent.table("t")})
    other = {"id": list(id)}
    for operation in (ns.describe_table(other), ns.deregister_table(other), ns.drop_table(other)):
        await catch(err.InvalidInputError, operation, "no Lance table")
    assert (await ns.list_tables({"id": list(parent.id)})).tables == ["t"]
    await catch(err.TableAlreadyExistsError, ns.declare_table({"id": list(id)}))


async def test_opening_returns_details_of_the_dataset(ns: AsyncNamespace, parent: Parent) -> None:
    location = await _written(ns, parent.table("t"))
    lance.write_dataset(DATA, location, mode="append")
    await ns.declare_table({"id": parent.table("empty")})
    request = {"id": parent.table("t"), "load_detailed_metadata": True, "with_table_uri": True}
    result = await ns.describe_table(request)
    assert result.version == 2 and result.table == "t" and result.namespace == list(parent.id)
    assert result.var_schema is not None and [f.name for f in result.var_schema.fields] == ["id"]
    assert result.stats is not None and result.stats.num_fragments == 2
    assert result.table_uri is not None and "://" in result.table_uri
    assert (await ns.describe_table({"id": parent.table("t"), "version": 1})).version == 1
    assert (await ns.describe_table({"id": parent.table("empty"), "check_declared": True})).is_only_declared is True
    assert (await ns.describe_table({"id": parent.table("t"), "check_declared": True})).is_only_declared is False


# `tests/conformance` has such names on all sites, without data.
@pytest.mark.parametrize("name", with_usual(ODD, "a b", "日本", "a%2Fb", ".."))
async def test_an_odd_name_is_held_as_it_is_or_refused(
    ns: AsyncNamespace, site: Site, parent: Parent, name: str
) -> None:
    try:
        declared = await ns.declare_table({"id": parent.table(name)})
    except err.InvalidInputError as e:
        assert name in str(e) or "HTTP 400" in str(e)
        assert (await ns.list_tables({"id": list(parent.id)})).tables == []
        return
    kept = name.lower() if site.can.folds_case and not site.can.keeps_case else name
    assert (await ns.list_tables({"id": list(parent.id)})).tables == [kept]
    assert declared.location is not None
    lance.write_dataset(DATA, declared.location)
    described = await ns.describe_tables([parent.table(name)])
    assert lance.dataset(described.tables[TableId(parent.table(name))].location).count_rows() == 3
    await ns.drop_table({"id": parent.table(name)})
    assert not await ns.exists(parent.table(name))


async def _written(ns: AsyncNamespace, id: list[str]) -> str:
    declared = await ns.declare_table({"id": id})
    assert declared.location is not None
    lance.write_dataset(DATA, declared.location)
    return declared.location
