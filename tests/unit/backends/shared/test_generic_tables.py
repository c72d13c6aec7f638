"""Declarations on Polaris: locations, stored values, and lost responses."""

from __future__ import annotations

import json
from pathlib import Path

import lance_namespace.errors as err
import pytest

from tests.support.errors import catch
from tests.support.polaris import connected, described, list_requests, open_server


async def test_a_place_is_taken_from_the_namespace_unless_there_is_a_root(tmp_path: Path) -> None:
    with open_server() as server:
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


async def test_an_unknown_location_is_required() -> None:
    with open_server() as server:
        server.add_namespace("cat", ("a",))
        server.reply('{"namespace": ["a"], "properties": {}}', match="GET")
        async with connected(server) as ns:
            with pytest.raises(err.InvalidInputError, match="its namespace has no location; give one"):
                await ns.declare_table(["cat", "a", "t"])
            with pytest.raises(err.NamespaceNotFoundError, match=r"^Namespace not found: cat\$none "):
                await ns.declare_table(["cat", "none", "t"])


@pytest.mark.parametrize("level", ["a?b", "a#b", "a%2Fb", "a/b"])
async def test_a_place_in_a_namespace_that_may_be_read_as_another_is_refused(level: str) -> None:
    with open_server() as server:
        server.add_namespace("cat", (level,))
        async with connected(server) as ns:
            with pytest.raises(err.InvalidInputError, match="may also be that of another namespace"):
                await ns.declare_table(["cat", level, "t"])
            request = {"id": ["cat", level, "t"], "location": "file:///data/elsewhere"}
            assert (await ns.declare_table(request)).location == "file:///data/elsewhere"


@pytest.mark.parametrize("location", ["/a/path", "gs://x/y/", "file:///outside", "file:///a%20b", "s3://bucket/a b"])
async def test_a_location_is_kept_as_it_was_given(location: str) -> None:
    with open_server() as server:
        server.add_namespace("cat", ("a",))
        async with connected(server) as ns:
            declared = await ns.declare_table(["cat", "a", "t"], location=location)
            assert declared.location == (await described(ns, "cat", "a", "t")).location == location


async def test_a_location_that_the_server_changes_is_an_error_and_nothing_is_left() -> None:
    table = {"name": "t", "format": "lance", "base-location": "s3://other/t", "properties": {}}
    with open_server() as server:
        server.add_namespace("cat", ("a",))
        server.reply(json.dumps({"table": table}), match="POST", when="after")
        async with connected(server) as ns:
            with pytest.raises(err.InternalError, match="would register it at s3://other/t, not at s3://mine/t"):
                await ns.declare_table(["cat", "a", "t"], location="s3://mine/t")
            assert not await ns.exists(["cat", "a", "t"])


async def test_data_left_at_a_location_is_reported() -> None:
    table = {"name": "t", "format": "lance", "base-location": "s3://other/t", "properties": {}}
    with open_server() as server:
        server.add_namespace("cat", ("a",))
        server.reply(json.dumps({"table": table}), match="POST", when="after")
        server.fail(503, match="DELETE")
        async with connected(server) as ns:
            with pytest.raises(
                err.InternalError, match="would register it at s3://other/t, not at s3://mine/t"
            ) as raised:
                await ns.declare_table(["cat", "a", "t"], location="s3://mine/t")
            [note] = raised.value.__notes__
            assert note.startswith("and it is still registered there, because that could not be undone (Service unav")
            assert await ns.exists(["cat", "a", "t"])


async def test_an_empty_location_is_not_the_default_one() -> None:
    with open_server() as server:
        location = server.add_table("cat", ("a",), "t")
        async with connected(server) as ns:
            for work in (
                ns.declare_table(["cat", "a", "u"], location=""),
                ns.register_table(["cat", "a", "u"], location=""),
                ns.register_table(["cat", "a", "t"], location="", mode="overwrite"),
            ):
                await catch(err.InvalidInputError, work, "its location '' is empty; omit it")
            assert list_requests(server) == []
            assert (await described(ns, "cat", "a", "t")).location == location


async def test_what_the_server_would_never_take_is_refused_before_any_call() -> None:
    with open_server() as server:
        location = server.add_table("cat", ("a",), "t")
        async with connected(server) as ns:
            properties = {"polaris.x": "1"}
            with pytest.raises(err.InvalidInputError, match=r"property 'polaris\.x'"):
                await ns.declare_table(["cat", "a", "u"], properties=properties)
            with pytest.raises(err.InvalidInputError, match=r"property 'polaris\.x'"):
                request = {
                    "id": ["cat", "a", "t"],
                    "location": "s3://b/t",
                    "mode": "overwrite",
                    "properties": properties,
                }
                await ns.register_table(request)
            assert list_requests(server) == []
            assert (await described(ns, "cat", "a", "t")).location == location
