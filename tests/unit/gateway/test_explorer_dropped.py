"""The page of dropped tables, and the form that brings one back."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import access, serving
from lance_ns_async.gateway.request_log import log
from tests.support.lake import ROWS, stream
from tests.unit.gateway.test_explorer import Browser, form_token

TOKENS = "\n".join(
    f'[{name}]\nrights = "{right}"\nonly = {only}\nsha256 = ["{access.hash_of(name)}"]\n'
    for name, right, only in (
        ("reader", "read", ["**"]),
        ("writer", "write", ["**"]),
        ("own", "write", ["n.*", "gone.mine"]),
        ("boss", "admin", ["n.*"]),
    )
)


@pytest_asyncio.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake"), "drop_retention": "3d"}) as ns:
        await ns.create_namespace("n")
        await ns.create_namespace("other")
        yield ns


async def drop(ns: AsyncNamespace, *ids: str) -> dict[str, str]:
    """Creates and drops tables; returns their locations by their ids."""
    locations = {}
    for id in ids:
        await ns.create_table(id, stream(ROWS))
        locations[id] = (await ns.describe_table(id)).location or ""
        await ns.drop_table(id)
    return locations


@asynccontextmanager
async def browsing(
    ns: AsyncNamespace, tmp_path: Path, token: str | None = None, **options: Any
) -> AsyncIterator[Browser]:
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    async with serving(ns, tokens=file, token="owner", ui=True, **options) as gateway:
        browser = Browser(gateway)
        async with browser.client:
            assert (await browser.sign_in(token)).status_code == 303
            yield browser


async def undrop(browser: Browser, location: str, **fields: str) -> Any:
    token = form_token(await browser.get("/ui/dropped"))
    return await browser.post("/ui/undrop", {"location": location, "form_token": token, **fields})


@pytest.mark.parametrize("token", ["owner", "writer"])
async def test_a_dropped_table_is_shown_and_comes_back(
    ns: AsyncNamespace, tmp_path: Path, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    places = await drop(ns, "n.t")
    async with browsing(ns, tmp_path, token) as browser:
        page = unescape((await browser.get("/ui/dropped")).text)
        for text in ("n$t", places["n.t"].removeprefix("file://"), "2 days", "Bring back"):
            assert text in page
        with caplog.at_level(logging.INFO, log.name):
            answer = await undrop(browser, places["n.t"])
        assert (answer.status_code, answer.headers["Location"]) == (303, "/ui/table?id=n&id=t")
        assert f" {token} undrop n$t 303 " in caplog.text
        assert (await browser.get(answer.headers["Location"])).status_code == 200
        assert "n$t" not in unescape((await browser.get("/ui/dropped")).text)
        assert (await undrop(browser, places["n.t"])).status_code == 404


async def test_a_name_that_is_taken_asks_for_another_one(ns: AsyncNamespace, tmp_path: Path) -> None:
    places = await drop(ns, "n.t")
    await ns.create_table("n.t", stream(ROWS))
    async with browsing(ns, tmp_path) as browser:
        assert "Another table has the name now" in (await browser.get("/ui/dropped")).text
        answer = await undrop(browser, places["n.t"])
        assert answer.status_code == 409 and "type another id beside the table" in answer.text
        for wrong in ("n.t\u0000", "t" * 300, "a..b"):
            assert (await undrop(browser, places["n.t"], id=wrong)).status_code == 400
        answer = await undrop(browser, places["n.t"], id="other.t2")
        assert answer.headers["Location"] == "/ui/table?id=other&id=t2"


async def test_a_token_brings_back_what_it_may_declare(ns: AsyncNamespace, tmp_path: Path) -> None:
    await ns.create_namespace("gone")
    places = await drop(ns, "n.t", "n.u", "other.secret", "gone.mine")
    await ns.drop_namespace("gone")
    async with browsing(ns, tmp_path, "own") as browser:
        page = await browser.get("/ui/dropped")
        assert "n$t" in page.text and "secret" not in page.text
        for place in (places["other.secret"], f"{places['n.t']}/../..", "/etc", "", "s3://bucket/x"):
            assert (await undrop(browser, place)).status_code == 404
        assert (await undrop(browser, places["n.t"], id="other.t")).status_code == 403
        answer = await undrop(browser, places["gone.mine"])
        assert answer.status_code == 403 and "create_namespace" in answer.text
        assert (await undrop(browser, places["n.t"])).status_code == 303
        location, token = places["n.u"], "0" * 64
        assert (await browser.post("/ui/undrop", {"location": location, "form_token": token})).status_code == 403


async def test_a_drop_by_a_token_that_may_drop_is_taken_back_by_one_that_may_write(
    ns: AsyncNamespace, tmp_path: Path
) -> None:
    for id in ("n.t", "other.t"):
        await ns.create_table(id, stream(ROWS))
    location = (await ns.describe_table("n.t")).location or ""
    async with browsing(ns, tmp_path, "own") as browser:
        for token, id, status in (("own", "n$t", 403), ("boss", "other$t", 403), ("boss", "n$t", 200)):
            path, headers = f"/v1/table/{id}/drop", {"x-lance-token": token}
            assert (await browser.client.post(path, json={}, headers=headers)).status_code == status
        assert await ns.exists("other.t") and not await ns.exists("n.t")
        assert (await undrop(browser, location)).status_code == 303
    assert (await ns.count_table_rows("n.t")).count == len(ROWS)


@pytest.mark.parametrize(("token", "options"), [("reader", {}), ("owner", {"read_only": True})])
async def test_nothing_comes_back_without_the_right_to_write(
    ns: AsyncNamespace, tmp_path: Path, token: str, options: dict[str, Any]
) -> None:
    places = await drop(ns, "n.t")
    async with browsing(ns, tmp_path, token, **options) as browser:
        page = await browser.get("/ui/dropped")
        assert "n$t" in page.text and "Bring back" not in page.text
        assert (await undrop(browser, places["n.t"])).status_code == 403
    assert not await ns.exists("n.t")


async def test_a_catalog_without_a_root_has_no_page(tmp_path: Path) -> None:
    async with serving(object(), ui=True) as gateway:
        browser = Browser(gateway)
        async with browser.client:
            await browser.sign_in()
            assert "Not supported: dropped" in (await browser.get("/ui/dropped")).text
