"""Iceberg REST: paths, prefixes, tokens, errors, protection of tables, and commits with an idempotency key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.backends.shared.iceberg_wire import new_key, routes
from lance_ns_async.calls.deadline import deadline
from tests.fakes.iceberg import LANCE, MANAGED, FakeIceberg
from tests.fakes.iceberg.catalog import Quirks
from tests.support.errors import catch
from tests.support.running import running

QUICK = {"backoff_initial": "1ms", "backoff_max": "2ms"}


@asynccontextmanager
async def connected(server: FakeIceberg, **properties: str) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, **QUICK, **properties}) as ns:
        yield ns


def paths(server: FakeIceberg) -> list[str]:
    return [str(request) for request in server.requests]


@pytest.mark.parametrize(
    ("server", "path"),
    [
        (FakeIceberg(), "/v1/namespaces/a%2Eb/tables/t"),
        (FakeIceberg(Quirks(separator=None, jetty=False)), "/v1/namespaces/a%1Fb/tables/t"),
        (FakeIceberg(prefix="ws", prefix_in="defaults"), "/v1/ws/namespaces/a%2Eb/tables/t"),
        (FakeIceberg(prefix="main%7Cwh", prefix_in="overrides"), "/v1/main%7Cwh/namespaces/a%2Eb/tables/t"),
        (FakeIceberg(base="/iceberg"), "/iceberg/v1/namespaces/a%2Eb/tables/t"),
    ],
    ids=["separator", "usual-separator", "prefix-in-defaults", "escaped-prefix", "base-path"],
)
async def test_paths_are_what_the_configuration_says(server: FakeIceberg, path: str) -> None:
    with server:
        server.add_table(("a", "b"), "t")
        async with connected(server) as ns:
            await ns.describe_table(["a", "b", "t"])
            await ns.describe_table(["a", "b", "t"])
        base = path[: path.index("/v1")]
        assert paths(server) == [f"GET {base}/v1/config", *[f"GET {path}?snapshots=refs"] * 2]


async def test_names_are_encoded_once() -> None:
    async with running(connected, FakeIceberg(Quirks(separator=None, jetty=False))) as (server, ns):
        names = ["a b", "é", "a/b", "a%2Fb", "a.b", "a?b#c", "~"]
        for name in names:
            server.add_table((name, "in.side"), name)
            assert (await ns.describe_table([name, "in.side", name])).location
        assert "GET /v1/namespaces/a%252Fb%1Fin.side/tables/a%252Fb?snapshots=refs" in paths(server)


@pytest.mark.parametrize("level", ["a.b", ".", ".."])
async def test_unaddressable_level_is_refused(server: FakeIceberg, ns: AsyncNamespace, level: str) -> None:
    await catch(err.InvalidInputError, ns.describe_table([level, "t"]), "cannot address a level")
    await catch(err.InvalidInputError, ns.create_namespace([level]), "cannot address a level")
    assert paths(server) == ["GET /v1/config"]


async def test_the_warehouse_is_requested_once_and_is_no_level_of_ids() -> None:
    async with running(connected, FakeIceberg(warehouse="my wh", prefix="p"), warehouse="my wh") as (server, ns):
        server.add_table(("a",), "t")
        await ns.describe_tables([["a", "t"]] * 5 + [["a", f"none{i}"] for i in range(40)])
        assert server.warehouses == ["my wh"]


async def test_a_configuration_that_fails_is_requested_again(server: FakeIceberg, ns: AsyncNamespace) -> None:
    server.add_table(("a",), "t")
    server.fail(403, match="config")
    await catch(err.PermissionDeniedError, ns.describe_table(["a", "t"]), "the catalog")
    parent = r"found: a\$b \(describe_namespace: .* Not Found\)"
    await catch(err.NamespaceNotFoundError, ns.create_namespace(["a", "b", "c"]), parent)
    assert (await ns.describe_table(["a", "t"])).location


async def test_an_advertised_page_size_is_used_and_all_pages_are_read() -> None:
    async with running(connected, FakeIceberg(page_size=3)) as (server, ns):
        names = server.add_lance_tables(("a",), 8)
        assert (await ns.list_tables(["a"])).tables == names
        listings = [path for path in paths(server) if "/tables?" in path]
        assert len(listings) == 3 and all("pageSize=3" in path for path in listings)


@pytest.mark.parametrize("paging", ["offset", "opaque", "ignored"])
async def test_a_limit_loads_no_more_than_it_needs(paging: str) -> None:
    async with running(connected, FakeIceberg(Quirks(paging=paging))) as (server, ns):  # type: ignore[arg-type]
        names = server.add_lance_tables(("a",), 50)
        page = await ns.list_tables(["a"], limit=5)
        assert page.tables == names[:5] and page.page_token
        assert sum("snapshots=refs" in path for path in paths(server)) == 5
        rest = await ns.list_tables(["a"], page_token=page.page_token)
        assert rest.tables == names[5:] and not rest.page_token


async def test_a_listing_that_never_ends_is_an_error() -> None:
    async with running(connected, FakeIceberg(Quirks(paging="stuck"), page_size=3)) as (server, ns):
        server.add_lance_tables(("a",), 8)
        await catch(err.InternalError, ns.list_tables(["a"]), "does not end")


async def test_listing_fails_with_a_table(server: FakeIceberg, ns: AsyncNamespace) -> None:
    server.add_lance_tables(("a",), 5)
    server.fail(403, match="tables/t0003")
    await catch(err.PermissionDeniedError, ns.list_tables(["a"]), r"a\$t0003")


async def test_a_bearer_token_and_headers_are_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with FakeIceberg(token="sesame-token") as server:
        server.add_table(("a",), "t")
        async with connected(server, auth_token="sesame-token", **{"header.X-Team": "sesame-team"}) as ns:
            await ns.describe_table(["a", "t"])
            assert "sesame" not in repr(ns) + ns.namespace_id()
        assert all(request.headers["X-Team"] == "sesame-team" for request in server.requests)
        async with connected(server, auth_token="sesame-wrong") as ns:
            caught = await catch(err.UnauthenticatedError, ns.describe_table(["a", "t"]))
            assert "sesame" not in str(caught.value)
    assert "sesame" not in caplog.text


async def test_a_location_the_catalog_changed_is_refused_and_nothing_is_left() -> None:
    async with running(connected, FakeIceberg(Quirks(moves_tables=True))) as (server, ns):
        server.add_namespace(("a",))
        with pytest.raises(err.InvalidInputError, match="would register it at"):
            await ns.declare_table(["a", "t"], location="s3://bucket/mine")
        assert not await ns.exists(["a", "t"])


async def test_a_declared_table_is_a_lance_table_managed_by_the_storage(server: FakeIceberg, tmp_path: Path) -> None:
    async with connected(server, metadata_path="s3://bucket/_meta") as ns:
        request = {"id": ["a", "t"], "location": "s3://bucket/t.lance/", "properties": {"k": "v"}}
        declared = await ns.declare_table(request)
    kept = server.metadata(("a",), "t")
    assert declared.location == "s3://bucket/t.lance" and kept is not None
    assert kept["properties"] == {
        "gc.enabled": "false",
        "k": "v",
        "managed_by": "storage",
        "table_type": "lance",
        "write.metadata.path": "s3://bucket/_meta/a/t",
    }


async def gc_enabled(ns: AsyncNamespace, name: str) -> str | None:
    return ((await ns.describe_table(["a", name])).properties or {}).get("gc.enabled")


async def test_tables_are_protected_from_other_tools_by_default(server: FakeIceberg, tmp_path: Path) -> None:
    async with connected(server, root=tmp_path.as_uri()) as ns:
        await ns.declare_table(["a", "declared"])
        await ns.register_table(["a", "registered"], location="s3://bucket/t")
        await ns.declare_table(["a", "own"], properties={"gc.enabled": "true"})
        assert [await gc_enabled(ns, name) for name in ("declared", "registered", "own")] == ["false", "false", "true"]
    async with connected(server, root=tmp_path.as_uri(), gc_enabled="true") as ns:
        await ns.declare_table(["a", "unprotected"])
        assert await gc_enabled(ns, "unprotected") is None


async def test_a_version_that_the_catalog_commits_protects_its_table(server: FakeIceberg, tmp_path: Path) -> None:
    server.add_table(("a",), "t", properties=MANAGED, location=f"{tmp_path.as_uri()}/a/t")
    async with connected(server, root=tmp_path.as_uri()) as ns:
        assert await gc_enabled(ns, "t") is None
        await ns.write(["a", "t"], pa.table({"x": [1]}), mode="append")
        assert await gc_enabled(ns, "t") == "false"
        await ns.write(["a", "t"], pa.table({"x": [1]}), mode="append")
    commits = [it.json["updates"] for it in server.requests if it.method == "POST" and "tables/t" in it.path]
    assert [sum(it["action"] == "set-properties" for it in updates) for updates in commits] == [1, 0]


async def test_older_tables_are_protected_by_a_call(server: FakeIceberg, ns: AsyncNamespace) -> None:
    names = server.add_lance_tables(("a",), 3)
    server.add_lance_tables(("a", "b"), 1, stem="deep")
    server.add_table(("a",), "other", properties={})
    server.add_table(("a",), "own", properties={**LANCE, "gc.enabled": "true"})
    assert [str(id) for id in await ns.protect_tables(["a"], recursive=False)] == [f"a${name}" for name in names]
    assert [str(id) for id in await ns.protect_tables()] == ["a$b$deep0000"]
    assert await ns.protect_tables() == []
    assert await gc_enabled(ns, names[0]) == "false"
    assert await gc_enabled(ns, "own") == "true"
    other = server.metadata(("a",), "other")
    assert other is not None and other["properties"] == {}


async def test_protecting_goes_on_where_a_table_fails(server: FakeIceberg) -> None:
    names = server.add_lance_tables(("a",), 3)
    async with connected(server, max_retries="0") as ns:
        server.fail(403, match=f"POST .*{names[0]}", times=None)
        await catch(err.PermissionDeniedError, ns.protect_tables(), names[0])
        assert [await gc_enabled(ns, name) for name in names] == [None, "false", "false"]


async def test_an_address_without_a_catalog_is_no_missing_table(server: FakeIceberg, ns: AsyncNamespace) -> None:
    server.fail(404, times=None, match="config", body=b"<html>no such page</html>")
    with pytest.raises(err.InvalidInputError, match=r"get_config: HTTP 404: no such page \(http.*/v1/config\); is the"):
        await ns.exists(["a", "t"])
    await catch(err.InvalidInputError, ns.drop_namespace(["a"], mode="skip"), "get_config")
    await catch(err.InvalidInputError, ns.create_namespace(["a"]), "get_config")


async def test_a_rename_moves_or_names_what_is_in_its_way(server: FakeIceberg, ns: AsyncNamespace) -> None:
    location = server.add_table(("a",), "t")
    server.add_table(("a",), "taken")
    await catch(err.TableAlreadyExistsError, ns.rename_table(["a", "t"], new_table_name="taken"), r"a\$taken")
    await ns.deregister_table(["a", "taken"])
    assert [dropped.purge for dropped in server.dropped] == ["false"]
    request = {"id": ["a", "t"], "new_table_name": "t", "new_namespace_id": ["none"]}
    await catch(err.NamespaceNotFoundError, ns.rename_table(request), "Namespace not found: none")
    server.add_namespace(("b",))
    await ns.rename_table({"id": ["a", "t"], "new_table_name": "u", "new_namespace_id": ["b"]})
    assert (await ns.describe_table(["b", "u"])).location == location and not await ns.exists(["a", "t"])


async def test_overwriting_puts_the_old_registration_back_even_when_time_is_over(server: FakeIceberg) -> None:
    location = server.add_table(("a",), "t")
    async with connected(server, max_retries="0") as ns:
        server.delay(30, match="POST .*/tables/t", times=1)
        request = {"id": ["a", "t"], "location": "s3://bucket/new", "mode": "overwrite"}
        with deadline(0.3), pytest.raises(err.ServiceUnavailableError):
            await ns.register_table(request)
        assert (await ns.describe_table(["a", "t"])).location == location


@pytest.mark.parametrize("value", [None, 1, ["x"]])
async def test_a_value_that_is_no_text_is_reported(server: FakeIceberg, ns: AsyncNamespace, value: object) -> None:
    server.add_table(("a",), "t")
    body = {"metadata": {"location": "s3://b/t", "table-uuid": "1", "properties": {"table_type": "lance", "k": value}}}
    server.reply(json.dumps(body).encode(), match="tables/t")
    await catch(err.InternalError, ns.describe_table(["a", "t"]), "instead of a string")


async def test_tables_with_data_cost_two_loads_each(server: FakeIceberg, ns: AsyncNamespace, tmp_path: Path) -> None:
    server.add_lance_tables(("a",), 3)
    page = await ns.list_tables(["a"], include_declared=True)
    assert len(page.tables) == 3
    server.clear()
    lance.write_dataset(pa.table({"id": [1]}), tmp_path / "full")
    server.add_table(("b",), "full", location=(tmp_path / "full").as_uri())
    server.add_table(("b",), "empty", location=(tmp_path / "empty").as_uri())
    page = await ns.list_tables(["b"], include_declared=False)
    assert page.tables == ["full"]
    # The second one requests credentials: a listing needs none, but opening may need them.
    assert sum("snapshots=refs" in path for path in paths(server)) == 4


DECLARE = {"id": ["a", "t"], "location": "s3://bucket/t"}
IN_PROGRESS = {"message": "in progress", "type": "Conflict", "code": 409, "subtype": "request_in_progress"}


def keeping(lifetime: str | None = "PT30M") -> FakeIceberg:
    server = FakeIceberg(key_lifetime=lifetime)
    server.add_namespace(("a",))
    return server


def keys(server: FakeIceberg) -> list[str | None]:
    return [request.headers.get("Idempotency-Key") for request in server.requests if request.method == "POST"]


async def test_a_declaration_whose_answer_is_lost_is_sent_again_with_its_key() -> None:
    async with running(connected, keeping()) as (server, ns):
        server.cut(match="POST", when="after", times=2)
        assert (await ns.declare_table(DECLARE)).location == "s3://bucket/t"
        # Without a key, the table would be described after the lost response.
        assert [request.method for request in server.requests] == ["GET", *["POST"] * 3]
        await catch(err.TableAlreadyExistsError, ns.declare_table(DECLARE))
        first, *again, other = keys(server)
        assert first and again == [first] * 2 and other != first
        # A replacement has a key, too.
        server.clear()
        server.cut(match="POST", when="after")
        new = await ns.register_table({**DECLARE, "location": "s3://bucket/new", "mode": "Overwrite"})
        first, again_ = keys(server)
        assert new.location == "s3://bucket/new" and first and again_ == first
        # An attempt in progress is waited for.
        server.clear()
        server.fail(409, match="POST", body={"error": IN_PROGRESS})
        assert (await ns.declare_table({**DECLARE, "id": ["a", "u"]})).location == "s3://bucket/t"
        assert len(keys(server)) == 2 and len(set(keys(server))) == 1


@pytest.mark.parametrize("lifetime", [None, "PT1M", "soon"])
async def test_no_key_without_support_for_the_time_of_an_operation(lifetime: str | None) -> None:
    async with running(connected, keeping(lifetime)) as (server, ns):
        server.cut(match="POST", when="after")
        assert (await ns.declare_table(DECLARE)).location == "s3://bucket/t"
        assert keys(server) == [None]


async def test_a_call_that_fails_to_the_end_is_looked_up() -> None:
    async with running(connected, keeping(), max_retries="2") as (server, ns):
        server.cut(match="POST", times=None)
        await catch(err.ServiceUnavailableError, ns.declare_table(DECLARE), "whether it took effect is unknown")
        assert len(set(keys(server))) == 1 and len(keys(server)) == 3


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("PT30M", 1800), ("P1DT2H3M4.5S", 93784), ("PT24H", 86400), ("P1M", None), ("", None), (5, None), (None, None)],
)
def test_durations(duration: object, seconds: float | None) -> None:
    assert routes({"idempotency-key-lifetime": duration}).key_lifetime == seconds


def test_keys_are_ordered_uuids_of_version_7() -> None:
    assert {UUID(new_key()).version for _ in range(100)} == {7}
    assert {UUID(new_key()).variant for _ in range(100)} == {UUID(int=0x8 << 60).variant}
    assert new_key() != new_key()
