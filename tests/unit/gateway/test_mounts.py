"""Several catalogs behind one gateway, one of which does not answer."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import MountedNamespace, serving
from lance_ns_async.gateway.access import hash_of
from lance_ns_async.spec.extensions import UNAVAILABLE
from tests.support.errors import catch
from tests.support.gateway import send_request


@pytest.fixture
async def mounts(tmp_path: Path) -> AsyncIterator[dict[str, AsyncNamespace]]:
    """Provides five directory catalogs, and one that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
    async with AsyncExitStack() as stack:
        mounts = {}
        for name in ("a", "b", "c", "d", "e"):
            ns = AsyncNamespace.connect("dir", {"root": str(tmp_path / name)})
            mounts[name] = await stack.enter_async_context(ns)
            await mounts[name].create_namespace({"id": ["sales"]})
            for number in range(3):
                await mounts[name].declare_table({"id": ["sales", f"t{number}"]})
        down = AsyncNamespace.connect("iceberg", {"endpoint": dead, "max_retries": "0"})
        mounts["down"] = await stack.enter_async_context(down)
        yield mounts


@pytest.fixture
async def client(mounts: dict[str, AsyncNamespace]) -> AsyncIterator[AsyncNamespace]:
    async with serving(MountedNamespace(mounts)) as gateway:
        properties = {"uri": gateway.url, "auth_token": gateway.token, "max_retries": "0"}
        async with AsyncNamespace.connect("rest", {**properties, "data_operations": "remote"}) as client:
            yield client


async def test_five_answer_although_one_is_down(client: AsyncNamespace) -> None:
    assert (await client.list_namespaces({"id": []})).namespaces == ["a", "b", "c", "d", "down", "e"]
    assert (await client.list_tables({"id": []})).tables == []
    for name in ("a", "b", "c", "d", "e"):
        assert (await client.list_namespaces({"id": [name]})).namespaces == ["sales"]
        assert (await client.list_tables({"id": [name, "sales"]})).tables == ["t0", "t1", "t2"]
        assert f"/{name}/" in ((await client.describe_table({"id": [name, "sales", "t1"]})).location or "")
    await catch(err.ServiceUnavailableError, client.list_namespaces({"id": ["down"]}))
    ids = [(name, "sales", "t1") for name in ("a", "down", "b", "none", "e")]
    result = await client.describe_tables([*ids, ("a", "sales", "gone")])
    assert sorted(id[0] for id in result.tables) == ["a", "b", "e"]
    assert {id[0]: type(error) for id, error in result.errors.items()} == {
        "down": err.ServiceUnavailableError,
        "none": err.NamespaceNotFoundError,
        "a": err.TableNotFoundError,
    }


async def test_rows_go_to_the_catalog_of_their_table(client: AsyncNamespace, mounts: dict[str, AsyncNamespace]) -> None:
    await client.write(["b", "sales", "rows"], pa.table({"n": [1, 2, 3]}))
    assert (await client.count_table_rows({"id": ["b", "sales", "rows"]})).count == 3
    assert (await mounts["b"].open(["sales", "rows"])).count_rows() == 3
    described = await client.describe_table({"id": ["b", "sales", "rows"], "load_detailed_metadata": True})
    assert (described.namespace, described.table) == (["b", "sales"], "rows")
    await client.drop_table({"id": ["b", "sales", "rows"]})
    assert "rows" not in (await mounts["b"].list_tables({"id": ["sales"]})).tables


async def test_the_listing_of_all_tables_says_what_is_left_out(mounts: dict[str, AsyncNamespace]) -> None:
    namespace = MountedNamespace(mounts)
    expected = [f"{name}$sales$t{number}" for name in ("a", "b", "c", "d", "e") for number in range(3)]
    page = await namespace.list_all_tables(spec.ListTablesRequest())
    assert page.tables == expected and page.context == {UNAVAILABLE: "down"}
    for limit in (1, 2, 3, 4, 20):
        found, sizes, token = [], [], None
        while True:
            page = await namespace.list_all_tables(spec.ListTablesRequest(limit=limit, page_token=token))
            found += page.tables
            sizes.append(len(page.tables))
            if (token := page.page_token) is None:
                break
        assert found == expected and max(sizes) <= limit
    await catch(err.InvalidInputError, namespace.list_all_tables(spec.ListTablesRequest(page_token="x")), "page_token")
    with pytest.raises(err.ServiceUnavailableError):
        await MountedNamespace({"down": mounts["down"]}).list_all_tables(spec.ListTablesRequest())


async def test_changes_stay_within_a_catalog(mounts: dict[str, AsyncNamespace]) -> None:
    namespace = MountedNamespace(mounts)
    other = spec.RenameTableRequest(id=["a", "sales", "t0"], new_table_name="t9", new_namespace_id=["b", "sales"])
    await catch(err.UnsupportedOperationError, namespace.rename_table(other), "to another catalog")
    part = spec.CommitTableOperation
    both = [part(declare_table=spec.DeclareTableRequest(id=[name, "sales", "new"])) for name in ("a", "b")]
    with pytest.raises(err.UnsupportedOperationError, match="several catalogs"):
        await namespace.batch_commit_tables(spec.BatchCommitTablesRequest(operations=both))
    # The catalog itself refuses this one, with the id that it has there.
    with pytest.raises(err.UnsupportedOperationError, match="only create_table_version"):
        await namespace.batch_commit_tables(spec.BatchCommitTablesRequest(operations=both[:1]))
    with pytest.raises(err.LanceNamespaceError, match=r"none.*known are"):
        await namespace.describe_table(spec.DescribeTableRequest(id=["none", "t"]))
    with pytest.raises(err.InvalidInputError, match="the first name of the id is missing"):
        await namespace.drop_namespace(spec.DropNamespaceRequest(id=[]))
    with pytest.raises(err.InvalidInputError, match="mount 'a\\$b'"):
        MountedNamespace({"a$b": mounts["a"]})
    with pytest.raises(err.InvalidInputError, match="must not be empty"):
        MountedNamespace({})
    with pytest.raises(AttributeError):
        getattr(namespace, "create_everything")  # noqa: B009 - no type has this name


async def test_rights_are_for_catalogs_and_what_is_in_them(mounts: dict[str, AsyncNamespace], tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(f'[ann]\nrights = "write"\nonly = ["b.sales.**"]\nsha256 = ["{hash_of("ann")}"]\n')
    async with serving(MountedNamespace(mounts), tokens=file) as gateway:
        headers = {"x-lance-token": "ann"}
        assert (await send_request(gateway, "GET", "/v1/namespace/$/list", headers=headers)).json["namespaces"] == ["b"]
        listed = (await send_request(gateway, "GET", "/v1/table", headers=headers)).json
        assert listed["tables"] == [f"b$sales$t{number}" for number in range(3)] and "context" not in listed
        for table, status in (("a$sales$t1", 403), ("b$sales$new", 200)):
            assert (await send_request(gateway, "POST", f"/v1/table/{table}/declare", {}, headers)).status == status
        # A location in the folder of another catalog is refused, too.
        place = (tmp_path / "a" / "t").as_uri()
        target = "/v1/table/b$sales$x/declare"
        assert (await send_request(gateway, "POST", target, {"location": place}, headers)).status == 403
