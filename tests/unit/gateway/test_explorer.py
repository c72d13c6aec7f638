"""The web pages of a gateway, over HTTP: sign-in, pages, hostile names, secrets and failures."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shlex
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import httpx
import lance_namespace as spec
import pyarrow as pa
import pytest
from lance_namespace.errors import ServiceUnavailableError, TableNotFoundError
from lance_namespace_urllib3_client.models.tag_contents import TagContents

from lance_ns_async.gateway import Gateway, access, serving
from lance_ns_async.gateway.explorer.cells import cell, cells
from lance_ns_async.gateway.explorer.namespaces import search
from lance_ns_async.gateway.explorer.reading import CatalogReader
from lance_ns_async.gateway.explorer.site import LIFETIME, Attempts, SignInLink
from lance_ns_async.gateway.explorer.snippets import snippets
from lance_ns_async.gateway.rights import OWNER, GrantedNamespace
from lance_ns_async.storage import watched_file
from tests.fakes.certificates import Certificates
from tests.support.lake import ROWS, Lake, lake, stream

HOSTILE = (
    *("<script>alert(1)</script>", '"><img src=x onerror=alert(1)> \' " `', "line\nend\r\n\ttab"),
    *("\u202egnp.exe\u200f", "n" * 200, "a/b?c=d&e=f#g%2F$", "{0} {title} {{}}"),
)
FORM_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]+)"')
LINK = re.compile(r'<a (?:rel="next" )?href="([^"]+)"')


class Browser:
    """A client that keeps cookies and does not follow redirects."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.client = httpx.AsyncClient(base_url=gateway.url, trust_env=False)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(path, headers=headers)

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        return await self.client.post(path, data=fields, headers=headers)

    async def sign_in(self, token: str | None = None, next: str = "/ui") -> httpx.Response:
        form = await self.get("/ui")
        fields = {"token": self.gateway.token if token is None else token, "next": next}
        return await self.post("/ui/sign-in", {**fields, "form_token": form_token(form)})


def form_token(page: httpx.Response) -> str:
    found = FORM_TOKEN.search(page.text)
    assert found is not None, page.text
    return found[1]


def links(page: httpx.Response, start: str) -> list[str]:
    return [path for path in map(unescape, LINK.findall(page.text)) if path.startswith(start)]


def address(page: str, *id: str) -> str:
    return f"/ui/{page}?{urlencode([('id', part) for part in id])}"


@asynccontextmanager
async def browsing(namespace: object, *, signed_in: bool = True) -> AsyncIterator[Browser]:
    async with serving(namespace, ui=True) as gateway:
        browser = Browser(gateway)
        async with browser.client:
            if signed_in:
                assert (await browser.sign_in()).status_code == 303
            yield browser


@asynccontextmanager
async def reading(stored: Lake, folder: Path) -> AsyncIterator[Browser]:
    """Provides the browser of a token that may read the tables `n.*`."""
    file = folder / "tokens.toml"
    file.write_text(f'[ann]\nrights = "read"\nonly = ["n.*"]\nsha256 = ["{access.hash_of("ann")}"]\n')
    async with serving(stored.ns, tokens=file, ui=True) as gateway:
        browser = Browser(gateway)
        async with browser.client:
            assert (await browser.sign_in("ann")).status_code == 303
            yield browser


class Hostile:
    """A namespace object whose names are hostile, and some of whose operations are missing or fail."""

    def __init__(self, names: Sequence[str] = HOSTILE) -> None:
        self.names = list(names)
        self.error: Exception | None = None
        self.listed: list[int | None] = []

    async def _respond(self, response: Any) -> Any:
        if self.error is not None:
            raise self.error
        return response

    def _page(self, request: Any, names: Sequence[str]) -> tuple[list[str], str | None]:
        self.listed.append(request.limit)
        start = int(request.page_token or 0)
        end = start + (request.limit or len(names))
        return list(names[start:end]), str(end) if end < len(names) else None

    async def list_namespaces(self, request: spec.ListNamespacesRequest) -> Any:
        names, token = self._page(request, [] if request.id else self.names)
        return await self._respond(spec.ListNamespacesResponse(namespaces=names, page_token=token))

    async def list_tables(self, request: spec.ListTablesRequest) -> Any:
        names, token = self._page(request, self.names)
        return await self._respond(spec.ListTablesResponse(tables=names, page_token=token))

    async def describe_table(self, request: spec.DescribeTableRequest) -> Any:
        return await self._respond(
            spec.DescribeTableResponse(
                location="s3://user:hidden-password@bucket/<b>?sig=hidden-signature",
                storage_options={"aws_secret_access_key": "hidden-option"},
                properties={**dict.fromkeys(HOSTILE, HOSTILE[0]), "api_key": "hidden-key"},
            )
        )

    async def list_table_tags(self, request: spec.ListTableTagsRequest) -> Any:
        tag = TagContents(version=1, manifest_size=1)
        return await self._respond(spec.ListTableTagsResponse(tags=dict.fromkeys(HOSTILE, tag)))

    async def list_table_branches(self, request: spec.ListTableBranchesRequest) -> Any:
        raise RuntimeError("hidden detail")


async def test_sign_in_and_out() -> None:
    async with browsing(Hostile(), signed_in=False) as browser:
        redirect = await browser.get("/")
        assert (redirect.status_code, redirect.headers["location"]) == (303, "/ui")
        page = await browser.get("/ui/table?id=a")
        assert page.status_code == 401 and 'type="password"' in page.text
        assert 'name="next" value="/ui/table?id=a"' in page.text
        # Browsers send no cookie along a link of another site, so the page reloads itself.
        page = await browser.get("/ui/table?id=a", **{"Sec-Fetch-Site": "cross-site"})
        assert page.headers["refresh"] == "0; url=/ui/table?id=a" and "set-cookie" not in page.headers
        assert "refresh" not in (await browser.get("/ui/sql?q=x", **{"Sec-Fetch-Site": "cross-site"})).headers
        response = await browser.sign_in(next="/ui/table?id=a")
        assert (response.status_code, response.headers["location"]) == (303, "/ui/table?id=a")
        cookie = response.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/ui", f"Max-Age={LIFETIME}"} <= set(cookie.split("; "))
        assert "Secure" not in cookie and browser.gateway.token not in cookie
        page = await browser.get("/ui")
        assert page.status_code == 200
        signed_out = await browser.post("/ui/sign-out", {"form_token": form_token(page)})
        assert signed_out.status_code == 303 and "Max-Age=0" in signed_out.headers["set-cookie"]
        browser.client.cookies.extract_cookies(response)
        assert (await browser.get("/ui")).status_code == 401


async def test_cookies_are_for_tls_only_under_tls(tmp_path: Path) -> None:
    certificates = Certificates.made(tmp_path)
    client = ssl.create_default_context(cafile=certificates.ca_bundle)
    async with serving(Hostile(), host="localhost", tls=certificates.server, ui=True) as gateway:
        browser = Browser(gateway)
        browser.client = httpx.AsyncClient(base_url=gateway.url, verify=client, trust_env=False)
        async with browser.client:
            assert "Secure" in (await browser.sign_in()).headers["set-cookie"].split("; ")
            assert (await browser.get("/ui")).status_code == 200


@pytest.mark.parametrize("next", ["https://example.com", "//example.com", "/uix", "/ui\r\nX: y", "/v1/table"])
async def test_sign_in_redirects_to_pages_of_the_explorer_only(next: str) -> None:
    async with browsing(Hostile(), signed_in=False) as browser:
        assert (await browser.sign_in(next=next)).headers["location"] == "/ui"


async def test_wrong_tokens_are_refused_and_limited() -> None:
    async with browsing(Hostile(), signed_in=False) as browser:
        wrong = await browser.sign_in("wrong")
        assert wrong.status_code == 401 and "The token is wrong." in wrong.text
        assert (await browser.get("/ui")).status_code == 401
        fields = {"form_token": form_token(await browser.get("/ui")), "token": "wrong"}
        assert {(await browser.post("/ui/sign-in", fields)).status_code for _ in range(30)} == {401, 429}
    time = 7.0
    attempts = Attempts(lambda: time)
    assert [attempts.count("a") for _ in range(5)] == [True, True, True, False, False]
    assert attempts.count("b")
    time = 8.0
    assert attempts.count("a")


async def test_a_link_signs_in_once() -> None:
    async with browsing(Hostile(), signed_in=False) as browser:
        link = browser.gateway.sign_in_link
        assert (await browser.get("/ui/sign-in?code=x")).status_code == 401 and link not in repr(browser.gateway)
        assert (await browser.get(link)).headers["location"] == "/ui" and (await browser.get("/ui")).status_code == 200
        browser.client.cookies.clear()
        again = await browser.get(link)
        assert again.status_code == 401 and "The link was used" in again.text


def test_a_link_expires() -> None:
    time = 0.0
    link = SignInLink("secret", lambda: time)
    time = 601.0
    assert link.use(link.path.partition("=")[2]) is None


async def test_forms_of_other_sites_are_refused() -> None:
    async with browsing(Hostile()) as browser:
        right = form_token(await browser.get("/ui"))
        for fields, headers in (
            *(({}, {}), ({"form_token": "0" * 64}, {}), ({"form_token": "\ud800é"}, {})),
            ({"form_token": right}, {"Origin": "https://example.com"}),
            ({"form_token": right}, {"Origin": browser.gateway.url[:-1]}),
        ):
            data = urlencode(fields, errors="replace")
            type = {"Content-Type": "application/x-www-form-urlencoded"}
            response = await browser.client.post("/ui/sign-out", content=data, headers={**headers, **type})
            assert response.status_code == 403, fields
        assert (await browser.get("/ui", Origin="https://example.com")).status_code == 403
        assert (await browser.get("/ui", Host="example.com")).status_code == 403
        assert (await browser.get("/ui", Host="localhost:x")).status_code in (400, 403)
        assert (await browser.get("/ui", Origin="http://[")).status_code == 403
        assert (await browser.get("/ui", Origin=browser.gateway.url)).status_code == 200
        api = await browser.client.get("/v1/table", headers={**browser.gateway.headers, "Origin": browser.gateway.url})
        assert api.status_code == 403
        for origin in ("null", browser.gateway.url):
            response = await browser.post("/ui/sign-out", {"form_token": right}, Origin=origin)
            assert response.status_code == 303
            await browser.sign_in()
            right = form_token(await browser.get("/ui"))
        # The cookie gives no access to the API.
        assert (await browser.get("/v1/namespace/$/list")).status_code == 401


async def test_headers_of_pages_and_files() -> None:
    async with browsing(Hostile()) as browser:
        for path, status in (("/ui", 200), ("/ui/none", 404), ("/ui/table", 400), ("/ui/search?q=", 400)):
            page = await browser.get(path)
            assert page.status_code == status and page.headers["content-type"] == "text/html; charset=utf-8"
            assert 'class="tree"' in page.text and 'role="search"' in page.text and "Sign out" in page.text
            assert page.headers["cache-control"] == "no-store"
            assert page.headers["x-content-type-options"] == "nosniff"
            assert page.headers["referrer-policy"] == "no-referrer"
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert not re.search(r"<style|<script>|<[^>]* (style|on[a-z]+)=", page.text)
        files = re.findall(r'(?:href|src)="(/ui/static/[^"]+)"', (await browser.get("/ui")).text)
        assert len(files) == 3
        for path in files:
            file = await browser.get(path)
            assert file.headers["content-type"].split(";")[0] in ("text/css", "text/javascript", "image/svg+xml")
            assert (await browser.get(path, **{"If-None-Match": file.headers["etag"]})).status_code == 304
        assert (await browser.get("/ui/static/../site.py")).status_code in (401, 404)
        assert (await browser.get("/ui/static/%2e%2e%2fsite.py")).status_code == 404
        assert (await browser.client.delete("/ui")).status_code == 405
        assert (await browser.client.head("/ui")).status_code == 200


async def test_there_are_no_pages_by_default() -> None:
    async with serving(Hostile()) as gateway, httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
        for path in ("/", "/ui", "/ui/static/style.css"):
            assert (await client.get(path, headers=gateway.headers)).status_code == 404


async def test_hostile_names_are_text_and_lead_to_their_pages() -> None:
    async with browsing(Hostile()) as browser:
        root = await browser.get("/ui")
        for kind in ("namespace", "table"):
            paths = links(root, f"/ui/{kind}?")
            assert [dict(parse_qsl(urlsplit(path).query))["id"] for path in paths] == list(HOSTILE)
            for path in paths:
                page = await browser.get(path)
                assert page.status_code == 200
                assert_harmless(page.text)
                assert links(page, "/ui")
        found = await browser.get(f"/ui/search?{urlencode({'q': HOSTILE[0]})}")
        assert_harmless(found.text)
        assert address("table", HOSTILE[0], HOSTILE[0]) in links(found, "/ui/table")
        below = await browser.get(f"/ui/search?{urlencode({'below': urlencode({'id': HOSTILE[2]}), 'q': 'EXE'})}")
        assert links(below, "/ui/table") == [address("table", HOSTILE[2], HOSTILE[3])]


def assert_harmless(text: str) -> None:
    assert "<script>" not in text and "<img" not in text and "<b>" not in text
    assert "\u202e" not in re.sub(r'value="[^"]*"', "", text) and "hidden-" not in text


async def test_each_section_shows_its_own_error() -> None:
    namespace = Hostile()
    async with browsing(namespace) as browser:
        page = await browser.get(address("table", "t"))
        assert page.status_code == 200
        assert "Not supported: list_table_versions" in page.text and "Not supported: query_table" in page.text
        assert "log has the details" in page.text and "hidden detail" not in page.text
        assert page.text.count("<h2") == 10 and "***" in page.text
        assert page.text.count("log has the details") == 1
        namespace.error = ServiceUnavailableError("Service unavailable: the catalog <is> down")
        for path in ("/ui", address("namespace", "a"), address("table", "t"), "/ui/search?q=x"):
            page = await browser.get(path)
            assert page.status_code == 200
            assert "the catalog &lt;is&gt; down" in page.text and "<h1>" in page.text
        namespace.error = TableNotFoundError("Table not found: t")
        page = await browser.get(address("table", "t"))
        assert page.status_code == 404 and page.text.count("Table not found") == 1 and 'class="tree"' in page.text
        namespace.error = None
        assert "Not supported: query_table" in (await browser.get(address("table", "t"))).text


async def test_large_namespaces_are_read_page_by_page() -> None:
    namespace = Hostile([f"t{i:06}" for i in range(100_000)])
    async with browsing(namespace) as browser:
        first = await browser.get(address("namespace", "n"))
        assert len(links(first, "/ui/table?")) == 100 and namespace.listed == [100, 100]
        (next_page,) = [path for path in links(first, "/ui/namespace?") if "tables=" in path]
        second = await browser.get(next_page)
        assert links(second, "/ui/table?")[0] == address("table", "n", "t000100")
        assert namespace.listed == [100, 100, 100]
        assert address("namespace", "n") in links(second, "/ui/namespace?") and "Namespaces</h2>" not in second.text
        found = await browser.get(f"/ui/search?{urlencode({'below': 'id=n', 'q': 'T'})}")
        assert len(links(found, "/ui/table?")) == 100 and "stopped after 100 results" in found.text


async def test_a_search_ends_at_its_time_limit() -> None:
    class Endless(Hostile):
        async def list_namespaces(self, request: spec.ListNamespacesRequest) -> Any:
            return spec.ListNamespacesResponse(namespaces=["below", "beside"])

    result = await search(CatalogReader(GrantedNamespace(Endless(["table"]), OWNER)), ["n"], "TAB", seconds=0.3)
    assert result.timed_out or result.is_full
    assert {id[-1] for id in result.matches} == {"table"}


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path, {"storage.secret": "hidden-in-the-catalog"}) as it:
        await it.create(properties={"owner": "me", "password": "hidden-in-properties"})
        yield it


async def test_a_table_of_a_directory(stored: Lake) -> None:
    id = ["n", "t"]
    ns = stored.ns
    await ns.create_table_scalar_index(spec.CreateTableIndexRequest(id=id, column="id", index_type="BTREE"))
    await ns.insert_into_table(spec.InsertIntoTableRequest(id=id), stream(ROWS))
    await ns.create_table_tag(spec.CreateTableTagRequest(id=id, tag="first", version=1))
    async with browsing(ns) as browser:
        pages = [
            await browser.get(path)
            for path in (
                address("table", *id),
                "/ui",
                "/ui/table?id=n$t",
                "/ui/search?q=N.t",
                "/ui/table?id=x",
                "/ui/namespace?id=x",
                "/ui/table?id=n$t&tag=first",
            )
        ]
    text = unescape(re.sub(r"<[^>]*>", "", pages[0].text))
    for part in (
        "fixed_size_list<item: float>[2]",
        "red apple",
        "id_idx",
        "3 of 6",
        "first",
        "owner",
        str(stored.root),
        "UTC",
    ):
        assert part in text, part
    assert 'role="alert"' not in pages[0].text
    assert [page.status_code for page in pages] == [200, 200, 200, 200, 404, 404, 200]
    assert "Version 1." in pages[-1].text
    assert address("table", *id) in links(pages[3], "/ui/table")
    assert all("hidden-" not in page.text for page in pages)


@pytest.mark.parametrize(("version", "branch", "rows"), [(None, None, 1), (1, None, 3), (None, "trial", 6)])
async def test_code_opens_the_table(
    stored: Lake, monkeypatch: pytest.MonkeyPatch, version: int | None, branch: str | None, rows: int
) -> None:
    """Runs all code but that of Spark and of lancedb, which have their own tests."""
    id = ["n", "t"]
    await stored.ns.create_table_branch(spec.CreateTableBranchRequest(id=id, name="trial"))
    await stored.ns.insert_into_table(spec.InsertIntoTableRequest(id=id, branch="trial"), stream(ROWS))
    await stored.ns.delete_from_table(spec.DeleteFromTableRequest(id=id, predicate="id > 1"))
    async with serving(stored.ns, ui=True) as gateway:
        monkeypatch.setenv("LANCE_NS_TOKEN", gateway.token)
        codes = snippets(id, gateway.url, version, branch)
        found: dict[str, Any] = {}
        for library in ("lance_ns_async", "pylance", "SQL, by DuckDB", "Polars"):
            if library in codes:
                names: dict[str, Any] = {}
                await asyncio.to_thread(exec, codes[library], names)
                found[library] = names.get("rows", names.get("result", names.get("dataset")))
        counts = {library: getattr(it, "height", 0) or len(getattr(it, "rows", ())) for library, it in found.items()}
        counts |= {library: found[library].count_rows() for library in ("lance_ns_async", "pylance")}
        assert {*counts.values()} == {rows} and len(counts) == (2 if branch else 3 if version else 4)
        if "Shell" in codes:
            monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
            shell = await anyio.run_process(codes["Shell"])
            assert shell.stdout.count(b"red apple") == 2 and len(re.findall(rb'"id": ?', shell.stdout)) == rows


@pytest.mark.parametrize("name", HOSTILE)
def test_code_contains_names_as_literals(name: str) -> None:
    parent, quoted = "\u00e9\U0001f600", name.replace('"', '""')
    written = {name, f'SELECT * FROM "{parent}"."{quoted}" LIMIT 20'}
    codes = dict(snippets([parent, name], "http://localhost"))
    if "Shell" in codes:
        assert f"{parent}${name}" in shlex.split(codes.pop("Shell"), comments=True)
    for code in codes.values():
        assert written & {it.value for it in ast.walk(ast.parse(code)) if isinstance(it, ast.Constant)}
        assert all(line.isprintable() for line in code.splitlines())


@pytest.mark.parametrize("id", [["-x"], ["a$b"], ["n", "t*"], ["n", "a\nb"]])
def test_names_that_a_command_cannot_contain_have_none(id: list[str]) -> None:
    assert "Shell" not in snippets(id, "http://localhost")
    assert "lance-ns head '$v1.2'" in snippets(["v1.2"], "http://localhost")["Shell"]


async def test_a_catalog_that_disappears_while_one_clicks(stored: Lake) -> None:
    async with browsing(stored.ns) as browser:
        assert (await browser.get(address("table", "n", "t"))).status_code == 200
        for path in sorted(stored.root.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        page = await browser.get(address("table", "n", "t"))
        assert page.status_code in (200, 404) and "error" in page.text
        assert (await browser.get(address("namespace", "n"))).status_code in (200, 404)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: pa.scalar(None, pa.string()), '<span class="null">null</span>'),
        (lambda: pa.scalar(b"x" * 12345), '<span class="blob">12,345 bytes</span>'),
        (lambda: pa.scalar(b"\x89PNG\r\n\x1a\n"), '<img src="data:image/png;base64,iVBORw0KGgo="'),
        (lambda: pa.scalar(b"RIFF0000WEBPVP8"), '<img src="data:image/webp;base64,'),
        (lambda: pa.scalar(b"\xff\xd8\xff" * 100_000), '<span class="blob">300,000 bytes</span>'),
        (lambda: pa.scalar(b"<svg onload=alert(1)>"), '<span class="blob">21 bytes</span>'),
        (lambda: pa.scalar([0.5] * 768, pa.list_(pa.float32(), 768)), "[0.5, 0.5, 0.5, 0.5, ... 768 values]"),
        (lambda: pa.scalar([[1], None]), "[[1], null]"),
        (lambda: pa.scalar([("k", b"v")], pa.map_(pa.string(), pa.binary())), "k"),
        (lambda: pa.scalar({"a": 1, "b": "<b>"}), "{a: 1, b: &lt;b&gt;}"),
        (lambda: pa.scalar({"position": 0, "size": 5000}), '<span class="blob">5,000 bytes</span>'),
        (lambda: pa.scalar("x" * 300), "x" * 200 + "..."),
        (lambda: pa.scalar(2**62, pa.timestamp("s")), "<bdi>"),
        (lambda: pa.array(["a"]).dictionary_encode()[0], "<bdi>a</bdi>"),
        (lambda: pa.scalar(b"\xff\xfe").cast(pa.string(), safe=False), "(cannot be shown)"),
        (lambda: pa.scalar(float("nan")), "nan"),
    ],
)
def test_values(make: Callable[[], Any], expected: str) -> None:
    assert expected in cell(make())


def test_a_sample_of_many_columns() -> None:
    sample = cells(pa.table({f"c{i}": [i] for i in range(60)}))
    assert sample.head[-1] == "<bdi>c49</bdi>" and sample.more_columns == 10


async def test_a_browser_sees_what_its_token_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The file of tokens is looked at for each request.
    monkeypatch.setattr(watched_file, "_FRESH", 0.0)
    file = tmp_path / "tokens.toml"
    entry = f'[ann]\nrights = "read"\nonly = ["sales.a*"]\nsha256 = ["{access.hash_of("ann")}"]\n'
    file.write_text(entry)

    class Lake(Hostile):
        async def list_namespaces(self, request: spec.ListNamespacesRequest) -> Any:
            return spec.ListNamespacesResponse(namespaces=[] if request.id else ["sales", "hidden-namespace"])

    async with serving(Lake(["a1", "hidden-table"]), tokens=file, ui=True) as gateway:
        browser = Browser(gateway)
        async with browser.client:
            assert (await browser.sign_in("ann")).status_code == 303
            pages = [await browser.get(path) for path in ("/ui", address("namespace", "sales"), "/ui/search?q=e")]
            assert "sales" in pages[0].text and ">a1<" in pages[1].text
            assert all(page.status_code == 200 and "hidden-" not in page.text for page in pages)
            denied = await browser.get(address("table", "sales", "hidden-table"))
            assert "Permission denied" in denied.text and "bucket" not in denied.text
            denied = await browser.get(address("namespace", "hidden-namespace"))
            assert "Permission denied" in denied.text and ">a1<" not in denied.text
            file.write_text(entry.replace("only", "# only"))
            assert "hidden-namespace" in (await browser.get("/ui")).text
            file.write_text("")
            assert (await browser.get("/ui")).status_code == 401
