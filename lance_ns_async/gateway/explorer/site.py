"""The routes of the explorer, its sign-in, and the headers of its responses."""

from __future__ import annotations

import hmac
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from time import monotonic
from urllib.parse import parse_qsl

from aiohttp import web
from anyio import move_on_after
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.errors import http_status, shortened, subject_of
from lance_ns_async.gateway.access import TOKEN_HEADER, Access
from lance_ns_async.gateway.explorer import dropped, layout, namespaces, rows, sql, table
from lance_ns_async.gateway.explorer.layout import Page, Viewer
from lance_ns_async.gateway.explorer.reading import CatalogReader
from lance_ns_async.gateway.explorer.rows import View
from lance_ns_async.gateway.explorer.sign_in import ATTEMPT_LIFETIME, CodeFlow, SignInError, TemporaryValues
from lance_ns_async.gateway.identities import CallerNamespaces, SharedNamespace
from lance_ns_async.gateway.limits import Share
from lance_ns_async.gateway.request_log import RequestLog
from lance_ns_async.gateway.responses import HEADERS, RequestError
from lance_ns_async.gateway.rights import GrantedNamespace, Principal
from lance_ns_async.gateway.wire import body
from lance_ns_async.masked import MaskedText
from lance_ns_async.model import DELIMITER, Id, NamespaceId, TableId

_MAX_FORM = 64 << 10
_SQL_MEMORY = 512 << 20  # Maximum memory of a statement, in bytes.
_MAX_FIELDS = 1_000  # Maximum number of fields of a query or of a form.
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]+))?")

_MAX_CATALOG = 60  # Maximum number of characters of the catalog's name in the header.

_SIMILAR_SECONDS = 3.0  # Maximum seconds to look for the id that an unknown one means.

LIFETIME = 8 * 3600  # Seconds after which a session ends.
_LINK_LIFETIME = 600  # Seconds in which a link signs in.
_MAX_ATTEMPTS = 3  # Maximum number of attempts from one address in one second.
_TOO_MANY = "Too many attempts; wait a second and try again."

_SESSION, _FORM, _ATTEMPT = "lance_ns", "lance_ns_form", "lance_ns_sign_in"  # The beginnings of the names of cookies.

_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; media-src data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


Change = Callable[[Callable[[], Awaitable[web.Response]], RequestLog], Awaitable[web.Response]]
"""Makes a change, which goes on if the client leaves; raises RequestError if its log cannot be written."""


class Explorer:
    """The web pages of a gateway."""

    def __init__(
        self,
        namespaces: SharedNamespace | CallerNamespaces,
        access: Access,
        idle: float,
        memory: int,
        token: str | None,
        *,
        read_only: bool,
        flow: CodeFlow | None = None,
        public_url: str | None = None,
    ) -> None:
        self._namespaces = namespaces
        self._read_only = read_only
        self.link = SignInLink(token) if token else None
        self._access = access
        self._idle = idle
        # Half of it is for DuckDB, and half for the rows that Lance reads ahead.
        self._sql_memory = min(_SQL_MEMORY, memory // 2)
        self._sessions = TemporaryValues[MaskedText](LIFETIME)  # The tokens that browsers have signed in with.
        self._flow = flow
        self._public_url = public_url
        self._forms = FormTokens()
        self._attempts = Attempts()

    def serves(self, path: str) -> bool:
        """Returns whether a path of a request belongs to the explorer."""
        return path in ("/", "/ui") or path.startswith("/ui/")

    async def answer(self, request: web.BaseRequest, share: Share, entry: RequestLog, change: Change) -> web.Response:
        """Returns the response to a request for a path that the explorer serves; `change` makes changes."""
        path, _, query = request.raw_path.partition("?")
        try:
            self._check_sender(request)
            if path == "/":
                return _redirect("/ui")
            is_static = path.startswith("/ui/static/")
            if request.method == "POST" and not is_static:
                return await self._post(request, path, share, entry, change)
            if request.method not in ("GET", "HEAD"):
                raise RequestError(405, f"The method {request.method} is not allowed")
            if is_static:
                return _asset(request, path.removeprefix("/ui/static/"))
            return await self._get(request, path, query, share, entry)
        except RequestError as e:
            page = layout.error_page(e.status, HTTPStatus(e.status).phrase, str(e))
            return _response(page, None, e.headers)

    async def _get(
        self, request: web.BaseRequest, path: str, query: str, share: Share, entry: RequestLog
    ) -> web.Response:
        if path == "/ui/sign-in":
            code = dict(_fields(query)).get("code")
            return _redirect("/ui") if code is None else await self._use_link(request, code, entry)
        if self._flow is not None and path == "/ui/sign-in/oidc":
            return self._go_to_provider(request, self._flow, dict(_fields(query)).get("next", ""))
        if self._flow is not None and path == "/ui/callback":
            return await self._come_back(request, self._flow, dict(_fields(query)), entry)
        id = request.cookies.get(_cookie(request, _SESSION), "")
        try:
            principal = await self._identify(id, entry)
        except RequestError:
            if not id and request.headers.get("Sec-Fetch-Site") == "cross-site":
                return _continue(request.raw_path)
            return self._sign_in(request, request.raw_path)
        headers: Mapping[str, str] = {}
        with self._namespaces.use(principal) as namespace:
            granted = GrantedNamespace(namespace, principal)
            try:
                if path == "/ui/sql":
                    page = await self._sql_page(granted, dict(_fields(query)).get("q", ""), share)
                elif path == "/ui/dropped":
                    can_undrop = principal.right != "read" and not self._read_only
                    page = await dropped.dropped_page(granted, can_undrop=can_undrop)
                else:
                    page = await self._page(CatalogReader(granted), request, path, query)
            except (LanceNamespaceError, RequestError) as e:
                status, headers = (e.status, e.headers) if isinstance(e, RequestError) else (http_status(e), headers)
                page = layout.error_page(status, HTTPStatus(status).phrase, str(e), near=await _near(granted, e))
        return _response(page, self._viewer(principal, id), headers)

    def _viewer(self, principal: Principal, cookie: str) -> Viewer:
        catalog: str = getattr(getattr(self._namespaces.model, "session", None), "catalog", "")
        name = shortened(catalog.removeprefix("lance_ns_async:"), _MAX_CATALOG)
        return Viewer(principal, name, self._forms.token(cookie))

    async def _identify(self, cookie: str, entry: RequestLog) -> Principal:
        """Returns the principal of a session; raises RequestError if there is none."""
        token = self._sessions.find(cookie)
        # The rights of a token may have changed since the sign-in.
        return await self._access.identify({} if token is None else {TOKEN_HEADER: token}, entry)

    async def _page(self, reader: CatalogReader, request: web.BaseRequest, path: str, query: str) -> Page:
        pairs = _fields(query)
        fields = dict(pairs)
        id = [value for key, value in pairs if key == "id"]
        match path:
            case "/ui" | "/ui/" | "/ui/namespace":
                tokens = {kind: [value for key, value in pairs if key == kind] for kind in ("namespaces", "tables")}
                given = {kind: values for kind, values in tokens.items() if values}
                return await namespaces.namespace_page(reader, NamespaceId(id), given)
            case "/ui/search":
                below = [value for key, value in _fields(fields.get("below", "")) if key == "id"]
                if not (text := fields.get("q", "").strip()):
                    raise InvalidInputError("q: the text to search for is empty; type a part of a name")
                return await namespaces.search_page(reader, NamespaceId(below), text)
            case "/ui/table" | "/ui/row" | "/ui/column" | "/ui/changes":
                # The id may be in one part, as it is printed.
                names = id[0].split(DELIMITER) if len(id) == 1 else id
                view = View.parse(TableId(names if all(names) else id), pairs)
                return await _table_page(reader, path, view, fields, self._address(request))
        raise RequestError(404, "There is no such page")

    async def _sql_page(self, namespace: GrantedNamespace, text: str, share: Share) -> Page:
        text = text.replace("\r\n", "\n")
        if text.strip():
            share.take(self._sql_memory)
        return await sql.sql_page(namespace, text, self._sql_memory // 2)

    async def _post(
        self, request: web.BaseRequest, path: str, share: Share, entry: RequestLog, change: Change
    ) -> web.Response:
        content = await body(request, _MAX_FORM, self._idle, "a form", share)
        fields = dict(_fields(content.decode(errors="replace")))
        form_token = fields.get("form_token", "")
        match path:
            case "/ui/sign-in":
                self._check_form(request.cookies.get(_cookie(request, _FORM), ""), form_token)
                return await self._try_token(request, fields.get("token", "").strip(), fields.get("next", ""), entry)
            case "/ui/sign-out":
                cookie = request.cookies.get(_cookie(request, _SESSION), "")
                self._check_form(cookie, form_token)
                self._sessions.remove(cookie)
                response = _redirect("/ui")
                response.del_cookie(_cookie(request, _SESSION), path="/ui")
                return response
            case "/ui/undrop":
                cookie = request.cookies.get(_cookie(request, _SESSION), "")
                self._check_form(cookie, form_token)
                return await self._undrop(request, cookie, fields, entry, change)
        raise RequestError(404, "There is no such form")

    async def _undrop(
        self, request: web.BaseRequest, cookie: str, fields: Mapping[str, str], entry: RequestLog, change: Change
    ) -> web.Response:
        """Brings back a dropped table, and shows its page."""
        try:
            principal = await self._identify(cookie, entry)
        except RequestError:
            return self._sign_in(request, "/ui/dropped")
        if self._read_only:
            raise RequestError(403, "Permission denied: undrop (this server is read-only)")
        location, id_text = fields.get("location", ""), fields.get("id", "").strip()
        entry.operation = "undrop"
        entry.name([id_text or location])

        async def work() -> web.Response:
            try:
                with self._namespaces.use(principal) as namespace:
                    id = await dropped.undrop(GrantedNamespace(namespace, principal), location, id_text)
            except LanceNamespaceError as e:
                status = http_status(e)
                page = layout.error_page(status, HTTPStatus(status).phrase, str(e))
                return _response(page, self._viewer(principal, cookie))
            entry.name([*id])
            return _redirect(layout.link("table", id))

        return await change(work, entry)

    async def _try_token(self, request: web.BaseRequest, token: str, next: str, entry: RequestLog) -> web.Response:
        if not self._attempts.count(request.remote or ""):
            return self._sign_in(request, next, status=429, message=_TOO_MANY)
        page = _redirect(next if _is_page(next) else "/ui")
        return await self._open(request, page, token, next, entry, "The token is wrong.")

    def _go_to_provider(self, request: web.BaseRequest, flow: CodeFlow, next: str) -> web.Response:
        """Sends the browser to the identity provider."""
        if not self._attempts.count(request.remote or ""):
            return self._sign_in(request, next, status=429, message=_TOO_MANY)
        # Tabs share the cookie.
        cookie = request.cookies.get(_cookie(request, _ATTEMPT)) or secrets.token_urlsafe(32)
        redirect_uri = f"{self._address(request)}/ui/callback"
        to = flow.begin(self._forms.token(cookie), redirect_uri, next if _is_page(next) else "/ui")
        response = _redirect(to)
        # Strict would withhold the cookie from the way back.
        self._set_cookie(request, response, _ATTEMPT, cookie, ATTEMPT_LIFETIME, samesite="Lax")
        return response

    async def _come_back(
        self, request: web.BaseRequest, flow: CodeFlow, fields: Mapping[str, str], entry: RequestLog
    ) -> web.Response:
        """Signs in a browser that comes back from the identity provider."""
        browser = self._forms.token(request.cookies.get(_cookie(request, _ATTEMPT), ""))
        try:
            token, next = await flow.finish(browser, fields)
        except SignInError as e:
            return self._sign_in(request, e.next, status=e.status, message=str(e))
        return await self._open(request, _continue(next), token, next, entry, flow.refusal)

    async def _open(
        self, request: web.BaseRequest, page: web.Response, token: str, next: str, entry: RequestLog, refusal: str
    ) -> web.Response:
        """Opens a session, and returns the page with its cookie; `refusal` says that the token is not accepted."""
        try:
            await self._access.identify({TOKEN_HEADER: token}, entry)
        except RequestError as e:
            return self._sign_in(request, next, status=e.status, message=refusal if e.status == 401 else str(e))
        self._set_cookie(request, page, _SESSION, self._sessions.add(MaskedText(token)), LIFETIME)
        return page

    async def _use_link(self, request: web.BaseRequest, code: str, entry: RequestLog) -> web.Response:
        token = None if self.link is None else self.link.use(code)
        refusal = "The link was used, or is too old; sign in with a token."
        return await self._open(request, _redirect("/ui"), token or "", "/ui", entry, refusal)

    def _sign_in(
        self, request: web.BaseRequest, next: str, *, status: int = 401, message: str | None = None
    ) -> web.Response:
        cookie = request.cookies.get(_cookie(request, _FORM)) or secrets.token_urlsafe(32)
        provider = None if self._flow is None else self._flow.host
        page = layout.sign_in_page(self._forms.token(cookie), next, provider, status=status, message=message)
        response = _response(page, None, {"Retry-After": "1"} if status == 429 else {})
        self._set_cookie(request, response, _FORM, cookie, None)
        return response

    def _address(self, request: web.BaseRequest) -> str:
        """Returns the address of the gateway as the browser knows it."""
        return self._public_url or f"{request.scheme}://{request.host}"

    def _set_cookie(
        self,
        request: web.BaseRequest,
        response: web.Response,
        kind: str,
        value: str,
        max_age: int | None,
        samesite: str = "Strict",
    ) -> None:
        secure = self._address(request).startswith("https:")
        name = _cookie(request, kind)
        response.set_cookie(name, value, max_age=max_age, path="/ui", secure=secure, httponly=True, samesite=samesite)

    def _check_form(self, cookie: str, form_token: str) -> None:
        if not self._forms.is_right(cookie, form_token):
            raise RequestError(403, "The form has expired or was sent by another site; reload the page and try again")

    def _check_sender(self, request: web.BaseRequest) -> None:
        origin = request.headers.get("Origin", "null")
        self._access.check_sender({"Host": request.host})
        if _HOST.fullmatch(request.host) is None:
            raise RequestError(400, "The Host header is malformed")
        # Without a referrer, browsers send `null` with the forms of these pages, too; forms contain a token.
        if origin != "null" and origin.partition("://")[2].lower() != request.host.lower():
            raise RequestError(403, "Requests from other sites are not allowed")


async def _table_page(reader: CatalogReader, path: str, view: View, fields: Mapping[str, str], address: str) -> Page:
    if tag := fields.get("tag"):
        it = await reader.read("get_table_tag_version", id=list(view.id), tag=tag)
        view = replace(view, version=it.version, branch=it.branch)
    match path:
        case "/ui/row":
            return await rows.row_page(reader, view, rows.number(fields, "row") or 0, rows.number(fields, "at"))
        case "/ui/column":
            return await rows.column_page(reader, view, fields.get("column", ""))
        case "/ui/changes":
            before, after = (rows.number(fields, name) or 0 for name in ("from", "to"))
            return await table.changes_page(reader, view, before, after)
    return await table.table_page(reader, view, address)


async def _near(namespace: GrantedNamespace, error: Exception) -> Id | None:
    """Returns the id that an unknown one probably means."""
    if not isinstance(error, TableNotFoundError | NamespaceNotFoundError) or (id := subject_of(error)) is None:
        return None
    with move_on_after(_SIMILAR_SECONDS):
        return await namespace.similar_id(id)
    return None


def _response(page: Page, viewer: Viewer | None, headers: Mapping[str, str] | None = None) -> web.Response:
    text = layout.document(page, viewer)
    return web.Response(
        body=text.encode(errors="replace"),
        status=page.status,
        content_type="text/html",
        charset="utf-8",
        headers={**_HEADERS, **(headers or {})},
    )


def _continue(path: str) -> web.Response:
    """Returns a page that goes on to a page of the explorer.

    The browser withholds the cookie of the session on the way from another site, but not from this page. A statement of
    another site runs only if the user goes on.
    """
    reload = {} if path.startswith("/ui/sql?") else {"Refresh": f"0; url={path}"}
    return _response(layout.continue_page(path), None, reload)


def _redirect(to: str) -> web.Response:
    return web.Response(status=303, headers={**_HEADERS, "Location": to})


def _asset(request: web.BaseRequest, name: str) -> web.Response:
    if (asset := layout.ASSETS.get(name)) is None:
        raise RequestError(404, "There is no such file")
    etag = f'"{asset.digest}"'
    headers = {**_HEADERS, "Cache-Control": "private, max-age=86400", "ETag": etag}
    if request.headers.get("If-None-Match") == etag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=asset.content, content_type=asset.content_type, charset="utf-8", headers=headers)


def _fields(text: str) -> list[tuple[str, str]]:
    """Returns the fields of a query or of a form."""
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise RequestError(400, f"The address or the form has more than {_MAX_FIELDS} fields") from None


def _is_page(path: str) -> bool:
    """Returns whether a form may redirect to the path: only pages of the explorer."""
    return re.fullmatch(r"/ui([/?][!-~]*)?", path) is not None


def _cookie(request: web.BaseRequest, kind: str) -> str:
    """Returns the name of a cookie: cookies apply to all ports of a host, so the gateways of one machine differ."""
    named = _HOST.fullmatch(request.host)
    port = (named[1] if named else None) or ("443" if request.secure else "80")
    return f"{kind}_{port}"


class SignInLink:
    """A link that signs in with a token once, within ten minutes."""

    def __init__(self, token: str, clock: Callable[[], float] = monotonic) -> None:
        self._token: str | None = token
        self._clock = clock
        self._until = clock() + _LINK_LIFETIME
        self._code = secrets.token_urlsafe(32)

    @property
    def path(self) -> str:
        """The path and the query of the link."""
        return f"/ui/sign-in?code={self._code}"

    def use(self, code: str) -> str | None:
        """Returns the token for the code of the link; None from the second time on, after its end and for others."""
        if not hmac.compare_digest(self._code.encode(), code.encode(errors="replace")) or self._clock() > self._until:
            return None
        token, self._token = self._token, None
        return token


class FormTokens:
    """Tokens that forms contain, each bound to a cookie, so that pages of other origins cannot send the forms."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, cookie: str) -> str:
        """Returns the token of forms for the browser with this cookie."""
        return hmac.digest(self._key, cookie.encode(errors="replace"), "sha256").hex()

    def is_right(self, cookie: str, token: str) -> bool:
        """Returns whether the token belongs to a cookie, which must not be empty."""
        return bool(cookie) and hmac.compare_digest(self.token(cookie).encode(), token.encode(errors="replace"))


class Attempts:
    """The number of attempts to sign in from each address in the current second."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._counts: Counter[str] = Counter()

    def count(self, address: str) -> bool:
        """Counts an attempt; returns whether it is allowed."""
        if (second := int(self._clock())) != self._second:
            self._second = second
            self._counts.clear()
        self._counts[address] += 1
        return self._counts[address] <= _MAX_ATTEMPTS
