"""The explorer's sign-in at an OpenID Connect issuer, over the wire, and what must not sign anybody in."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from lance_ns_async.gateway import serving
from lance_ns_async.gateway.explorer.sign_in import ATTEMPT_LIFETIME, CodeFlow, SignInError, TemporaryValues
from lance_ns_async.gateway.oidc import Issuer
from lance_ns_async.gateway.request_log import AuditLog
from lance_ns_async.gateway.request_log import log as request_log
from tests.fakes.oidc import FakeIssuer
from tests.unit.gateway.test_explorer import Browser, Hostile, links

SUBJECT = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
RULES = '[[oidc]]\nclaims = { azp = "spark" }\nrights = "read"\n'
SECRET = "hush + hush:7"


@pytest.fixture
def issuer() -> Iterator[FakeIssuer]:
    with FakeIssuer() as fake:
        yield fake


@asynccontextmanager
async def browsing(issuer: FakeIssuer, folder: Path, **options: Any) -> AsyncIterator[Browser]:
    """Provides a browser at a gateway, which is allowed as a client of the issuer."""
    (folder / "tokens.toml").write_text(RULES)
    if issuer.secret:
        (folder / "secret").write_text(f"{issuer.secret}\n")
        options["oidc_client_secret_file"] = folder / "secret"
    options |= {"oidc_issuer": issuer.issuer, "audience": "lake", "oidc_client_id": issuer.client}
    async with serving(Hostile(), tokens=folder / "tokens.toml", token="owner", ui=True, **options) as gateway:
        browser = Browser(gateway)
        issuer.redirect_uris.add(f"{options.get('public_url', gateway.url)}/ui/callback")
        async with browser.client:
            yield browser


async def visit_issuer(browser: Browser, next: str = "/ui") -> tuple[str, dict[str, str]]:
    """Follows the link of the sign-in page; returns the path and the fields with which the issuer sends back."""
    page = await browser.get(next)
    assert page.status_code == 401 and "Token of the gateway" in page.text
    (link,) = links(page, "/ui/sign-in/oidc?")
    to = await browser.get(link)
    back = await browser.client.get(to.headers["location"])
    path, _, query = back.headers["location"].removeprefix(browser.gateway.url).partition("?")
    return path, dict(parse_qsl(query))


def leaks(issuer: FakeIssuer, caplog: pytest.LogCaptureFixture, pages: str) -> set[str]:
    """Returns codes, verifiers, secrets and beginnings of tokens that are on pages, or in logs but the browser's."""
    logged = "".join(it.getMessage() for it in caplog.records if it.name.partition(".")[0] not in ("httpx", "httpcore"))
    assert "gateway" in logged or "/ui" in logged
    sent = {form[name] for form in issuer.forms for name in ("code", "code_verifier")}
    return {it for it in sent | {SECRET, issuer.sign().partition(".")[0], "Code not valid"} if it in logged + pages}


@pytest.mark.parametrize(
    ("secret", "authentication"),
    [
        ("", ["client_secret_basic"]),
        (SECRET, ["client_secret_basic", "client_secret_post"]),
        (SECRET, ["client_secret_post", "private_key_jwt"]),
    ],
)
async def test_a_browser_signs_in(
    issuer: FakeIssuer, secret: str, authentication: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.secret, issuer.authentication = secret, authentication
    audit = AuditLog(tmp_path / "audit")
    caplog.set_level(logging.DEBUG)
    request_log.addHandler(audit)
    try:
        async with browsing(issuer, tmp_path, oidc_scope="lake openid") as browser:
            path, fields = await visit_issuer(browser, "/ui/namespace?id=n")
            page = await browser.get(f"{path}?{urlencode(fields)}")
            # The cookie is not sent on the way from another site, but after a reload.
            assert (page.status_code, page.headers["refresh"]) == (200, "0; url=/ui/namespace?id=n")
            assert {"HttpOnly", "SameSite=Strict", "Path=/ui"} <= set(page.headers["set-cookie"].split("; "))
            seen = await browser.get("/ui/namespace?id=n")
            assert f"<strong>oidc:{SUBJECT}</strong>: read" in seen.text
            assert f'"oidc:{SUBJECT}"' in browser.gateway.metrics.text()
            assert not (leaked := leaks(issuer, caplog, page.text + seen.text)), leaked
    finally:
        request_log.removeHandler(audit)
        audit.close()
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(it["operation"], it["principal"]) for it in lines[-2:]] == [
        (f"GET /ui/{name}", f"oidc:{SUBJECT}") for name in ("callback", "namespace")
    ]
    assert [it["scope"] for it in issuer.codes.values()] == [] and len(issuer.forms) == 1


@pytest.mark.parametrize(
    ("next", "refresh"),
    [
        *(("https://evil.example", "/ui"), ("//evil.example", "/ui")),
        pytest.param(f"/ui?{'a' * 5000}", "/ui", id="long"),
        ("/ui/sql", "/ui/sql"),
        # A statement that another site has written runs only if the user goes on.
        ("/ui/sql?q=select+1", None),
    ],
)
async def test_it_returns_to_pages_of_the_explorer(
    issuer: FakeIssuer, next: str, refresh: str | None, tmp_path: Path
) -> None:
    async with browsing(issuer, tmp_path, public_url="https://lake.example.com/") as browser:
        issuer.redirect_uris.add("https://lake.example.com/ui/callback")
        host = {"Host": "lake.example.com"}
        to = await browser.get(f"/ui/sign-in/oidc?{urlencode({'next': next})}", **host)
        cookie = set(to.headers["set-cookie"].split("; "))
        assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/ui", f"Max-Age={ATTEMPT_LIFETIME}"} <= cookie
        back = await browser.client.get(to.headers["location"])
        assert back.headers["location"].startswith("https://lake.example.com/ui/callback?")
        host["Cookie"] = to.headers["set-cookie"].partition(";")[0]
        page = await browser.get(back.headers["location"].removeprefix("https://lake.example.com"), **host)
        assert page.headers.get("refresh") == (refresh and f"0; url={refresh}")
        assert page.status_code == 200 and "Continue to the page" in page.text


def answered(**changed: str | None) -> Callable[[FakeIssuer, Browser, dict[str, str]], None]:
    def change(_: FakeIssuer, __: Browser, fields: dict[str, str]) -> None:
        fields.update({name: value for name, value in changed.items() if value is not None})
        for name in [name for name, value in changed.items() if value is None]:
            del fields[name]

    return change


def with_other_cookie(_: FakeIssuer, browser: Browser, __: dict[str, str]) -> None:
    for cookie in browser.client.cookies.jar:
        cookie.value = "x"


NOT_HERE = "was not begun here"
MARKUP = "<script>alert(1)</script>\u202e" + "a" * 1000
Change = Callable[[FakeIssuer, Browser, dict[str, str]], Any]
UNKIND: dict[str, tuple[Change, int, str]] = {
    "wrong state": (answered(state="x"), 401, NOT_HERE),
    "no state": (answered(state=None), 401, NOT_HERE),
    "long state": (answered(state="x" * 50_000), 401, NOT_HERE),
    "no cookie": (lambda _, browser, __: browser.client.cookies.clear(), 401, NOT_HERE),
    "cookie of another browser": (with_other_cookie, 401, NOT_HERE),
    "another issuer": (answered(iss="https://evil.example"), 401, "is not that of 127.0.0.1"),
    "no issuer": (answered(iss=None), 401, "is not that of 127.0.0.1"),
    "refused": (answered(error="access_denied", error_description=MARKUP), 401, "did not sign you in: access_denied"),
    "no code": (answered(code=None), 401, "did not sign you in: no code"),
    "code that is no text": (answered(code="\n"), 401, "did not sign you in: no code"),
    "wrong code": (answered(code="code-1"), 502, "refused to give the gateway a token"),
    "wrong nonce": (lambda it, *_: it.id_claims.update(nonce="x"), 401, "does not belong to this sign-in"),
    "no nonce": (lambda it, *_: it.id_claims.update(nonce=None), 401, "does not belong to this sign-in"),
    "ID token of another client": (lambda it, *_: it.id_claims.update(aud="spark"), 401, "does not belong"),
    "ID token for another client": (lambda it, *_: it.id_claims.update(azp="spark"), 401, "does not belong"),
    "ID token of yesterday": (lambda it, *_: it.id_claims.update(exp=time.time() - 86400), 401, "does not belong"),
    "another audience": (lambda it, *_: it.user.update(aud="other"), 401, "must be a JWT for the audience 'lake'"),
    "opaque token": (lambda it, *_: it.reply('{"access_token": "x"}', match="POST"), 401, "the audience 'lake'"),
    "no token": (lambda it, *_: it.reply('{"access_token": [1]}', match="POST"), 401, "the audience 'lake'"),
    "expired token": (lambda it, *_: it.user.update(exp=1), 401, "the audience 'lake'"),
    "no rule": (lambda it, *_: it.user.update(azp="other"), 403, "no rule in the gateway's tokens file"),
    "issuer down": (lambda it, *_: it.stop(), 503, "127.0.0.1 cannot be reached; try again"),
    "redirect": (lambda it, *_: it.fail(307, headers={"Location": "/evil"}, match="POST"), 502, "refused to give"),
    "HTML": (lambda it, *_: it.reply(MARKUP, match="POST"), 502, "refused to give the gateway a token"),
    "no JSON object": (lambda it, *_: it.reply("[]", status=400, match="POST"), 502, "refused to give"),
    "huge response": (lambda it, *_: it.reply(" " * 300_000, match="POST"), 503, "cannot be reached"),
    "changed secret": (lambda it, *_: setattr(it, "secret", "other"), 502, "refused to give the gateway a token"),
}


@pytest.mark.parametrize("name", UNKIND)
async def test_what_signs_nobody_in(
    issuer: FakeIssuer, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.secret = SECRET
    caplog.set_level(logging.DEBUG)
    change, status, message = UNKIND[name]
    async with browsing(issuer, tmp_path) as browser:
        path, fields = await visit_issuer(browser, "/ui/table?id=a")
        right = dict(fields)
        change(issuer, browser, fields)
        page = await browser.get(f"{path}?{urlencode(fields)}")
        assert page.status_code == status and message in unescape(page.text), page.text
        assert "<script>" not in page.text and "\u202e" not in page.text and "a" * 250 not in page.text
        assert links(page, "/ui/sign-in/oidc?") and "Token of the gateway" in page.text
        if fields.get("state") == right["state"]:
            # The attempt is over, also for who sends the right response.
            again = await browser.get(f"{path}?{urlencode(right)}")
            assert again.status_code == 401 and NOT_HERE in again.text
        assert (await browser.get("/ui")).status_code == 401
        assert not (leaked := leaks(issuer, caplog, page.text)), leaked


async def test_attempts_end_and_are_bounded(issuer: FakeIssuer) -> None:
    now = 0.0
    async with Issuer(issuer.issuer, "lake", ["authorization_endpoint"]) as known:
        flow = CodeFlow(known, "explorer", None, None, lambda: now)
        state = dict(parse_qsl(urlsplit(flow.begin("b", "http://a", "/ui")).query))["state"]
        now = ATTEMPT_LIFETIME
        with pytest.raises(SignInError, match=NOT_HERE):
            await flow.finish("b", {"state": state})
    values = TemporaryValues[str](10, lambda: now)
    first, *_, last = [values.add("secret") for _ in range(1001)]
    assert values.find(first) is None and values.find(last) == values.remove(last) == "secret"
    assert values.remove(last) is None


async def test_a_flood_of_attempts_is_limited(issuer: FakeIssuer, tmp_path: Path) -> None:
    async with browsing(issuer, tmp_path) as browser:
        assert {(await browser.get("/ui/sign-in/oidc")).status_code for _ in range(30)} == {303, 429}
