"""A catalog vends credentials for a table's storage if it says so; otherwise a request for them has no effect."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.calls.observers import Call
from tests.contract.conftest import Parent
from tests.contract.site import Site

pytestmark = pytest.mark.round_trip

KEY = {"aws_access_key_id": "key", "aws_secret_access_key": "hush"}


async def test_credentials_are_given_out_where_a_catalog_says_so(site: Site, parent: Parent) -> None:
    id = parent.table("t")
    async with AsyncNamespace.connect(site.impl, site.properties) as ns:
        location = f"s3://lake/{parent.id.name}/t" if site.vends else None
        await ns.declare_table({"id": id, "location": location})
        plain, calls = await _asked(ns, {"id": id})
        vended, calls_for_them = await _asked(ns, {"id": id, "vend_credentials": True})
        unasked, _ = await _asked(ns, {"id": id, "vend_credentials": False})
    assert unasked == plain
    assert (vended["storage_options"] != plain["storage_options"]) is site.vends
    if site.vends:
        assert vended["storage_options"].items() >= KEY.items()
        async with AsyncNamespace.connect(site.impl, {**site.properties, "vend_credentials": "true"}) as ns:
            assert (await _asked(ns, {"id": id}))[0] == vended
            assert (await _asked(ns, {"id": id, "vend_credentials": False}))[0] == plain
    else:
        assert vended == plain and calls_for_them == calls


async def test_vended_credentials_replace_own_ones(site: Site, parent: Parent) -> None:
    if not site.vends:
        pytest.skip("it vends no credentials")
    id = parent.table("t")
    own = {"storage.Access_Key_Id": "own", "storage.token": "own", "storage.account_key": "own", "storage.k": "own"}
    async with AsyncNamespace.connect(site.impl, {**site.properties, **own}) as ns:
        await ns.declare_table({"id": id, "location": f"s3://lake/{parent.id.name}/t"})
        response = await ns.describe_table({"id": id, "vend_credentials": True})
    options = response.storage_options or {}
    assert options.items() >= KEY.items()
    assert {key: value for key, value in options.items() if value == "own"} == {"k": "own"}


async def test_a_declaration_gives_what_a_describe_gives(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    location = f"s3://lake/{parent.id.name}/t" if site.vends else None
    request = {"id": parent.table("t"), "location": location, "vend_credentials": True}
    declared = await ns.declare_table(request)
    result = await ns.describe_table({"id": parent.table("t"), "vend_credentials": True})
    assert (declared.location, declared.storage_options) == (result.location, result.storage_options)
    assert declared.storage_options != {}


async def _asked(ns: AsyncNamespace, request: dict[str, Any]) -> tuple[dict[str, Any], Counter[str]]:
    calls: list[Call] = []
    with ns.observe(calls.append):
        result = await ns.describe_table(request)
    return result.model_dump(), Counter(call.operation for call in calls)
