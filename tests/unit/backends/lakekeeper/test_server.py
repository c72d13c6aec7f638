"""What a real Lakekeeper 0.13.3 does otherwise than its API says, and what the backend makes of it."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.fleet.copies import copy
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.unit.backends.lakekeeper.test_backend import KEYS, connect, describe, requests_of

DATA = pa.table({"id": [1, 2, 3]})
NFC, NFD = "\u00e9", "e\u0301"


async def _rename(ns: AsyncNamespace, old: list[str], new: list[str]) -> None:
    await ns.rename_table(old, new_namespace_id=new[:-1], new_table_name=new[-1])


@pytest.mark.parametrize("place", ["requested", "n/a"])
@pytest.mark.parametrize("rooted", [False, True])
async def test_a_drop_keeps_the_rows_of_a_table_at_its_location(tmp_path: Path, place: str, rooted: bool) -> None:
    with FakeLakekeeper(base=tmp_path.as_uri()) as server:
        location = f"{tmp_path.as_uri()}/{place}"
        async with connect(server, **({"root": tmp_path.as_uri()} if rooted else {})) as ns:
            server.add_table(("n",), "a", location=location)
            server.add_table(("n",), "b", location=location)
            await ns.write(["n", "a"], DATA, mode="append")
            await ns.drop_table({"id": ["n", "b"]})
            assert (await ns.open(["n", "a"])).count_rows() == 3
            await ns.drop_table({"id": ["n", "a"]})
        assert not (tmp_path / place).exists()


async def test_a_location_with_the_names_of_a_table_may_be_that_of_another(tmp_path: Path) -> None:
    with FakeLakekeeper(base=tmp_path.as_uri()) as server:
        for name in ("a", "b"):
            server.add_table(("n",), name, location=f"{tmp_path.as_uri()}/n/a")
        async with connect(server) as ns:
            await ns.write(["n", "b"], DATA, mode="append")
            await ns.drop_table({"id": ["n", "a"]})
            assert (await ns.open(["n", "b"])).count_rows() == 3


async def test_a_drop_at_a_location_of_the_server_describes_no_other_table(tmp_path: Path) -> None:
    with FakeLakekeeper(base=tmp_path.as_uri()) as server:
        server.add_lance_tables(("n",), 3)
        async with connect(server) as ns:
            await ns.drop_table({"id": ["n", "t0001"]})
        assert not [request for request in requests_of(server) if "t0000" in request or "t0002" in request]


@pytest.mark.parametrize("taken", [["n", "taken"], ["N", "TAKEN"], ["m", "other"], ["n", "delta"]])
async def test_rename_onto_a_table(server: FakeLakekeeper, ns: AsyncNamespace, taken: list[str]) -> None:
    server.add_table(("n",), "t")
    server.add_table(("n",), "taken")
    server.add_table(("m",), "other")
    server.add_table(("n",), "delta", format="delta")
    with pytest.raises(err.TableAlreadyExistsError, match=rf"(?i)Table already exists: {taken[0]}\${taken[1]} "):
        await _rename(ns, ["n", "t"], taken)
    assert await ns.exists(["n", "t"])


async def test_a_rename_onto_an_invisible_name_says_what_takes_it() -> None:
    with FakeLakekeeper(soft=True) as server:
        for name in ("t", "deleted"):
            server.add_table(("n",), name)
        server.add_iceberg_table(("n",), "iceberg")
        async with connect(server) as ns:
            await ns.deregister_table({"id": ["n", "deleted"]})
            for name in ("deleted", "iceberg"):
                with pytest.raises(
                    err.TableAlreadyExistsError, match=r"n\$\w+ .*an Iceberg table or view, or by a deleted"
                ):
                    await _rename(ns, ["n", "t"], ["n", name])


async def test_rename_of_a_removed_table(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_table(("n",), "t")
    await describe(ns, "n", "t")
    server.warehouse.drop_table(("n",), "t", force=True)
    backend = ns.session.backend
    with pytest.raises(err.TableNotFoundError, match=r"n\$t "):
        await backend.rename_table(ns.session.table(["n", "t"]), ns.session.table(["n", "u"]))


async def test_a_rename_may_spell_the_namespace_otherwise(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_table(("n",), "t")
    await _rename(ns, ["n", "t"], ["N", "T"])
    assert [str(id) async for id in ns.iter_tables(["n"])] == ["n$T"]


@pytest.mark.parametrize(
    ("stored", "name"),
    [(NFC, NFD), (NFD, NFC), ("x2", "x\u00b2"), ("az", "a\u200dz"), ("kg", "\u338f"), ("1", "\u2460")],
)
async def test_equivalent_characters_are_refused(
    server: FakeLakekeeper, ns: AsyncNamespace, stored: str, name: str
) -> None:
    server.add_table(("n",), stored)
    server.add_table(("n",), "t")
    await ns.describe_table({"id": ["n", stored]})
    for operation in ("describe_table", "drop_table", "deregister_table"):
        server.clear()
        with pytest.raises(err.InvalidInputError, match="takes both names for equal") as caught:
            await getattr(ns, operation)({"id": ["n", name]})
        assert ascii(stored) in str(caught.value) and ascii(name) in str(caught.value)
        # A drop describes with credentials, and then without.
        assert len(server.requests) <= 2
    for operation in ("declare_table", "create_empty_table"):
        with pytest.raises(err.TableAlreadyExistsError):
            await getattr(ns, operation)({"id": ["n", name]})
    with pytest.raises(err.TableAlreadyExistsError):
        await _rename(ns, ["n", "t"], ["n", name])


async def test_an_answer_about_another_table_is_still_a_mix_up(server: FakeLakekeeper) -> None:
    server.add_table(("n",), "t")
    async with connect(server, max_retries="0") as ns:
        body = {
            "table": {"name": unicodedata.normalize("NFKD", "\u00fc"), "format": "lance", "base-location": "s3://b/t"}
        }
        server.fail(200, body=body, match="GET .*generic-tables/t")
        with pytest.raises(Exception, match="is there a proxy"):
            await describe(ns, "n", "t")


CHANGES: dict[str, Any] = {
    "create_namespace": {"id": ["new"]},
    "drop_namespace": {"id": ["empty"]},
    "declare_table": {"id": ["n", "new"]},
    "rename_table": {"id": ["n", "t"], "new_table_name": "u"},
    "deregister_table": {"id": ["n", "t"]},
    "drop_table": {"id": ["n", "t"]},
}


@pytest.mark.parametrize("operation", CHANGES)
async def test_a_change_whose_answer_was_lost_is_sent_again_by_its_key(tmp_path: Path, operation: str) -> None:
    with FakeLakekeeper(base=tmp_path.as_uri()) as server:
        server.add_table(("n",), "t")
        server.add_namespace(["empty"])
        server.cut(match="^(POST|DELETE) ", when="after")
        async with connect(server) as ns:
            await getattr(ns, operation)(CHANGES[operation])
        changes = [request for request in server.requests if request.method in ("POST", "DELETE")]
        keys = {request.headers["Idempotency-Key"] for request in changes}
        assert len(changes) == 2 and len(keys) == 1


async def test_a_copy_leaves_the_ids_of_namespaces_behind(tmp_path: Path) -> None:
    with FakeLakekeeper(base=tmp_path.as_uri()) as one, FakeLakekeeper(base=tmp_path.as_uri()) as two:
        one.add_namespace(["n"], {"k": "v"})
        one.add_table(("n",), "t")
        async with connect(one) as source, connect(two) as target:
            await copy(source, target)
            report = await copy(source, target)
        assert two.warehouse.spaces[("n",)].properties["k"] == "v"
        assert [(row.outcome, row.reason) for row in report.rows] == [("unchanged", "")]


async def test_a_namespace_with_deleted_tables_says_why_it_stays() -> None:
    with FakeLakekeeper(soft=True) as server:
        server.add_table(("n",), "t")
        async with connect(server) as ns:
            with pytest.raises(err.NamespaceNotEmptyError) as caught:
                await ns.drop_namespace({"id": ["n"]})
            assert "deleted" not in str(caught.value)
            await ns.deregister_table({"id": ["n", "t"]})
            with pytest.raises(err.NamespaceNotEmptyError, match="can still be restored are in it: 1; wait until they"):
                await ns.drop_namespace({"id": ["n"]})


async def test_a_request_that_is_too_large_is_invalid_input(server: FakeLakekeeper, ns: AsyncNamespace) -> None:
    server.add_namespace(["n"])
    with pytest.raises(err.InvalidInputError, match="length limit exceeded"):
        await ns.declare_table({"id": ["n", "t"], "properties": {"k": "v" * 2**21}})


@pytest.mark.parametrize("properties", [{"k": "a\0b"}, {"a\0b": "v"}])
async def test_null_character_in_a_property(
    server: FakeLakekeeper, ns: AsyncNamespace, properties: dict[str, str]
) -> None:
    server.add_namespace(["n"])
    for request in ({"id": ["n", "t"]}, {"id": ["m"]}):
        call = ns.declare_table if len(request["id"]) == 2 else ns.create_namespace
        with pytest.raises(err.InvalidInputError, match=r"property .*: Lakekeeper cannot store"):
            await call({**request, "properties": properties})
    assert server.requests == []


async def test_credentials_are_not_made_unless_they_are_requested() -> None:
    with FakeLakekeeper(vends=[{"prefix": "s3://", "config": KEYS}]) as server:
        server.add_table(("n",), "t")
        server.add_namespace(["empty"])
        server.cut(match="^POST ", when="after", times=1)
        async with connect(server) as ns:
            assert not (await describe(ns, "n", "t")).storage_options
            await ns.declare_table({"id": ["n", "u"]})
            await ns.rename_table({"id": ["n", "t"], "new_table_name": "v"})
            with pytest.raises(err.TableAlreadyExistsError):
                await ns.rename_table({"id": ["n", "v"], "new_table_name": "u"})
        loads = [it for it in server.requests if it.method == "GET" and "/generic-tables/" in it.path]
        assert len(loads) > 2
        assert {it.headers.get("X-Iceberg-Access-Delegation") for it in loads} == {"client-managed"}
