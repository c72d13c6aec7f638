"""Names and locations of Polaris: each name finds the object with exactly that name, or is refused."""

from __future__ import annotations

import json
from pathlib import Path

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId
from tests.fakes.polaris import FakePolaris
from tests.support.errors import catch
from tests.support.polaris import connected, described, list_requests
from tests.support.running import running

LEVELS = ["a.b", "a/b", "a+b", "a;b", "a?b#c", "a:b", "a'b", "ünï表", "a%1Fb", "%1F", "é", "x" * 300, "A", "a"]
REFUSED_LEVELS = ["a b", "a\tb", r"a\b", "a%b", "%"]


async def test_tables_that_look_alike_are_distinguished(server: FakePolaris, ns: AsyncNamespace) -> None:
    alike = ["ova", "ova?b", "ova#zzz", "a/b", "a%2Fb", "a%252Fb", "a+b", "a b", "a.b", "t", "T", "x/", "é", "e\u0301"]
    for name in alike:
        server.add_table("cat", ("n",), name, base_location=f"s3://b/{name}")
    result = await ns.describe_tables([["cat", "n", name] for name in alike])
    assert {id.name: table.location for id, table in result.tables.items()} == {n: f"s3://b/{n}" for n in alike}
    assert len(list_requests(server)) == len(alike)
    server.add_table("cat", ("a",), "x/y")
    server.reply('{"table": {"name": "x/y", "format": "lance", "base-location": "s3://b/t"}}', times=5)
    with pytest.raises(err.ServiceUnavailableError, match="an answer about the table 'x/y'; is there a proxy"):
        await described(ns, "cat", "a", "x%2Fy")
    assert (await described(ns, "cat", "a", "x/y")).location == "s3://b/t"


@pytest.mark.parametrize("level", LEVELS)
async def test_a_level_of_an_odd_name_is_held_as_it_is(server: FakePolaris, level: str) -> None:
    server.add_catalog("lake")
    async with connected(server, list_style="relative") as ns:
        for id in (["lake", level], ["lake", level, level]):
            await ns.create_namespace(id, properties={"k": "v"})
            assert (await ns.list_namespaces(id[:-1])).namespaces == [level]
            result = await ns.describe_namespace(id)
            assert result.properties is not None and result.properties["k"] == "v"
        await ns.declare_table(["lake", level, level, "t"], location="s3://b/t")
        assert (await described(ns, "lake", level, level, "t")).location == "s3://b/t"
        await ns.deregister_table(["lake", level, level, "t"])
        await ns.drop_namespace(["lake", level, level])
        await ns.drop_namespace(["lake", level])
        assert not await ns.exists(NamespaceId(["lake", level]))


async def test_namespaces_that_look_alike_are_distinguished(server: FakePolaris, ns: AsyncNamespace) -> None:
    alike = [("a.b",), ("a", "b"), ("a%1Fb",), ("a%2Eb",), ("a/b",), ("a%2Fb",), ("a+b",), ("a",), ("A",)]
    for levels in alike:
        server.add_table("cat", levels, "t", base_location="s3://b/" + "|".join(levels))
    result = await ns.describe_tables([["cat", *levels, "t"] for levels in alike])
    assert {id[1:-1]: table.location for id, table in result.tables.items()} == {
        levels: "s3://b/" + "|".join(levels) for levels in alike
    }


@pytest.mark.parametrize("catalog", ["my cat.é", "a/b", "a%2Fb", "a?b#c"])
async def test_a_catalog_of_an_odd_name_is_held_as_it_is(server: FakePolaris, catalog: str) -> None:
    location = server.add_table(catalog, ("a",), "t")
    async with connected(server, catalogs="*") as ns:
        assert (await described(ns, catalog, "a", "t")).location == location
        assert {*(await ns.list_namespaces([])).namespaces} == {"cat", catalog}


@pytest.mark.parametrize("level", REFUSED_LEVELS)
async def test_level_that_the_server_refuses(server: FakePolaris, ns: AsyncNamespace, level: str) -> None:
    server.add_catalog("cat")
    with pytest.raises(err.InvalidInputError, match=r"HTTP 400: IllegalArgumentException: .* \(X-Request-ID "):
        await ns.create_namespace(["cat", level])
    assert not await ns.exists(NamespaceId(["cat", level]))
    server.add_table("cat", (level,), "t", base_location="s3://b/t")
    assert (await described(ns, "cat", level, "t")).location == "s3://b/t"


@pytest.mark.parametrize(
    "id",
    [["cat", "a", "."], ["cat", "a", ".."], ["cat", "..", "t"], ["..", "a", "t"], ["cat", "a", ".", "t"]],
    ids=["table", "parent-table", "level", "catalog", "inner-level"],
)
async def test_name_that_proxies_rewrite(server: FakePolaris, ns: AsyncNamespace, id: list[str]) -> None:
    server.add_lance_tables("cat", ("a",), 3)
    await catch(err.InvalidInputError, described(ns, *id), "cannot address")
    await catch(err.InvalidInputError, ns.declare_table(id, location="s3://b/t"), "cannot address")
    if id[:-1] != ["cat", "a"]:
        await catch(err.InvalidInputError, ns.list_tables(id[:-1]), "cannot address")
        await catch(err.InvalidInputError, ns.create_namespace(id[:-1]), "cannot address")
    assert list_requests(server) == []


async def test_what_separates_levels_or_reads_like_a_message(server: FakePolaris, ns: AsyncNamespace) -> None:
    server.add_table("cat", ("a", "b"), "t")
    for id in (["cat", "a\x1fb"], ["cat", "a", "\x1f"]):
        await catch(err.InvalidInputError, ns.create_namespace(id), r"cannot address .*separates levels")
        await catch(err.InvalidInputError, described(ns, *id, "t"), r"cannot address .*separates levels")
    assert list_requests(server) == []
    name = "conflicts with existing table or namespace at"
    assert not await ns.exists(["cat", "a", name])
    assert not await ns.exists(NamespaceId(["cat", name]))
    await catch(err.TableNotFoundError, ns.deregister_table(["cat", "a", name]))


@pytest.mark.parametrize(("release", "name"), [("1.5", "a/b"), ("1.5", " x"), ("1.6", "a:b"), ("1.6", "a\tb")])
async def test_newer_servers_refuse_more_when_a_table_is_made(release: str, name: str) -> None:
    async with running(connected, FakePolaris(credential=None, strict_names=release)) as (server, ns):  # type: ignore[arg-type]
        server.add_namespace("cat", ("a",))
        advice = r"HTTP 400: .*Polaris from 1\.5 on accepts .*; choose another name"
        await catch(err.InvalidInputError, ns.declare_table(["cat", "a", name]), advice)
        if name not in (" x", "a\tb"):
            # These are refused by 1.4.1, too.
            await catch(err.InvalidInputError, ns.create_namespace(["cat", name]), advice)
        await catch(err.TableNotFoundError, described(ns, "cat", "a", name))


@pytest.mark.parametrize("length", [256, 600])
async def test_folder_with_too_long_a_name(server: FakePolaris, ns: AsyncNamespace, length: int) -> None:
    place = f"file:///data/{'x' * length}/t"
    server.add_table("cat", ("a",), "old", base_location=place)
    await catch(err.InvalidInputError, ns.declare_table(["cat", "a", "t"], location=place), f"a name of {length} bytes")
    await catch(err.InvalidTableStateError, ns.drop_table(["cat", "a", "old"]), r"nothing was deleted, .* bytes")
    assert (await ns.deregister_table(["cat", "a", "old"])).location == place
    assert not [request for request in list_requests(server) if request.startswith("POST")]


async def test_a_place_is_taken_from_the_namespace_unless_there_is_a_root(server: FakePolaris, tmp_path: Path) -> None:
    server.add_namespace("cat", ("a", "b"))
    async with connected(server, unique_locations="false") as ns:
        declared = await ns.declare_table(["cat", "a", "b", "x y"])
        assert declared.location == "file:///data/cat/a/b/x~20y"
        assert len(list_requests(server)) == 2
    server.clear()
    async with connected(server, root=str(tmp_path), unique_locations="false") as ns:
        declared = await ns.declare_table(["cat", "a", "b", "t"])
        assert declared.location == f"{tmp_path.as_uri()}/cat/a/b/t"
        assert len(list_requests(server)) == 1


@pytest.mark.parametrize("level", ["a?b", "a#b", "a%2Fb", "a/b"])
async def test_a_place_of_another_namespace_too(server: FakePolaris, ns: AsyncNamespace, level: str) -> None:
    server.add_namespace("cat", (level,))
    await catch(err.InvalidInputError, ns.declare_table(["cat", level, "t"]), "may also be that of another namespace")
    request = {"id": ["cat", level, "t"], "location": "file:///data/elsewhere"}
    assert (await ns.declare_table(request)).location == "file:///data/elsewhere"


@pytest.mark.parametrize("location", ["/a/path", "gs://x/y/", "file:///outside", "file:///a%20b", "s3://bucket/a b"])
async def test_a_location_is_kept_as_it_was_given(server: FakePolaris, ns: AsyncNamespace, location: str) -> None:
    declared = await ns.declare_table(["cat", "a", "t"], location=location)
    assert declared.location == (await described(ns, "cat", "a", "t")).location == location


@pytest.mark.parametrize("undone", [True, False])
async def test_a_location_the_server_changes_is_an_error(server: FakePolaris, ns: AsyncNamespace, undone: bool) -> None:
    table = {"name": "t", "format": "lance", "base-location": "s3://other/t", "properties": {}}
    server.reply(json.dumps({"table": table}), match="POST", when="after")
    if not undone:
        server.fail(503, match="DELETE")
    declare = ns.declare_table(["cat", "a", "t"], location="s3://mine/t")
    raised = await catch(err.InternalError, declare, "would register it at s3://other/t, not at s3://mine/t")
    assert await ns.exists(["cat", "a", "t"]) is not undone
    if not undone:
        [note] = raised.value.__notes__
        assert note.startswith("and it is still registered there, because that could not be undone (Service unav")


async def test_reserved_properties_and_unknown_locations_are_refused(server: FakePolaris, ns: AsyncNamespace) -> None:
    location = server.add_table("cat", ("a",), "t")
    fields = {"location": "s3://b/t", "properties": {"polaris.x": "1"}}
    declare, replace = ns.declare_table, ns.register_table
    await catch(err.InvalidInputError, declare(["cat", "a", "u"], **fields), r"property 'polaris\.x'")
    await catch(err.InvalidInputError, replace(["cat", "a", "t"], mode="overwrite", **fields), r"property 'polaris\.x'")
    assert list_requests(server) == []
    assert (await described(ns, "cat", "a", "t")).location == location
    server.reply('{"namespace": ["a"], "properties": {}}', match="GET")
    await catch(err.InvalidInputError, ns.declare_table(["cat", "a", "t"]), "its namespace has no location; give one")
    await catch(err.NamespaceNotFoundError, ns.declare_table(["cat", "none", "t"]), r"^Namespace not found: cat\$none ")
