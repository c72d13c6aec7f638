"""The gateway's HTTP server: start, access checks, request handling and graceful shutdown."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import anyio
import lance_namespace.errors as err
from aiohttp import web
from lance_namespace import ListNamespacesRequest
from pydantic import BaseModel

from lance_ns_async.gateway import openapi, parsing, responses, wire
from lance_ns_async.gateway.access import TOKEN_HEADER, Access, Tokens
from lance_ns_async.gateway.allowed_locations import AllowedLocations
from lance_ns_async.gateway.explorer.sign_in import ENDPOINTS, CodeFlow
from lance_ns_async.gateway.identities import CallerNamespaces, SharedNamespace
from lance_ns_async.gateway.limits import MAX_ANSWER_BYTES, MAX_BYTES, Limits, Memory, RemoteGuard, Share
from lance_ns_async.gateway.metrics import Metrics
from lance_ns_async.gateway.oidc import MAX_TOKEN, Issuer
from lance_ns_async.gateway.request_log import AuditLog, RequestLog
from lance_ns_async.gateway.responses import EventStream, RequestError
from lance_ns_async.gateway.rights import GrantedNamespace, Principal
from lance_ns_async.gateway.watches import HEARTBEAT, MAX_WATCHES, Watches
from lance_ns_async.gateway.wire import body, listeners
from lance_ns_async.spec.routes import BY_OPERATION, Route, match
from lance_ns_async.storage import guard, threads

if TYPE_CHECKING:
    from lance_ns_async.gateway.explorer.site import Explorer

log: logging.Logger = logging.getLogger(__name__)

_MAX_JSON = 4 << 20
_PARSED_JSON = 16  # Bytes in memory per byte of JSON after parsing, at most; floats and short strings need that many.
_LARGE = 4 << 10  # Size in bytes from which a request is parsed in a thread, so that it does not block other requests.
_MAX_LINE = 64 << 10  # Maximum bytes of the request line: it has properties and storage options of new tables.
_MAX_FIELD = MAX_TOKEN + (1 << 10)  # Maximum bytes of a header, of which the longest ones are tokens of an issuer.
_BACKLOG = 4_096  # Connections that wait to be accepted: without a place, a client tries again seconds later.
_HEAD_TIME = 30.0  # Maximum seconds that a client has for the head of its first request.
MAX_CONNECTIONS = 256  # Maximum connections from one address: a quarter of the usual descriptors of a process.

TraceRequest: TypeAlias = Callable[[str, Mapping[str, str]], AbstractContextManager[Callable[[str, str], None]]]
"""Returns the span of a request with a method and headers; the context gives what sets its operation and status."""

_REQUEST_ID = "X-Request-Id"
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")

_LINGER = 10.0  # Seconds that a client has to finish sending an unread body before it reads the response.


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running server: its address, its token and its metrics."""

    url: str
    token: str = field(repr=False)
    """The token of the owner; empty if only the principals of a file may use the server."""
    metrics: Metrics = field(repr=False)
    watches: Watches = field(repr=False)
    """The watches in progress."""
    sign_in_link: str = field(default="", repr=False)
    """The address of the web pages that signs the owner in once, within ten minutes; empty if there is none."""

    @property
    def cut_off(self) -> int:
        """The number of requests still in progress at the end of the grace period; set after the context has ended."""
        return self.metrics.cut_off

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers for every request. Spark redacts them by name, and a request's identity does not replace them."""
        return {TOKEN_HEADER: self.token} if self.token else {}

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties with which a namespace of the REST protocol connects to this gateway."""
        return {"uri": self.url, **{f"header.{name}": value for name, value in self.headers.items()}}


@asynccontextmanager
async def serving(
    namespace: object | CallerNamespaces,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    tokens: Path | None = None,
    oidc_issuer: str | None = None,
    audience: str | None = None,
    oidc_client_id: str | None = None,
    oidc_client_secret_file: Path | None = None,
    oidc_scope: str | None = None,
    public_url: str | None = None,
    read_only: bool = False,
    delimiter: str = "$",
    tls: ssl.SSLContext | None = None,
    hosts: Iterable[str] = (),
    max_bytes: int = MAX_BYTES,
    max_answer_bytes: int = MAX_ANSWER_BYTES,
    max_held_bytes: int | None = None,
    functions: Iterable[str] = (),
    allow_locations: Iterable[str] | None = (),
    grace: float = 30.0,
    idle: float = 120.0,
    max_connections: int = MAX_CONNECTIONS,
    max_watches: int = MAX_WATCHES,
    heartbeat: float = HEARTBEAT,
    ui: bool = False,
    tracer: TraceRequest | None = None,
    audit_log: AuditLog | None = None,
) -> AsyncIterator[Gateway]:
    """Serves a namespace as a Lance REST Namespace while the context is open; does not close the namespace.

    Requests that exceed `grace` are interrupted and counted in `Gateway.cut_off`. Worker threads in which Lance does
    not return are left behind, and keep the process from ending.

    Args:
        namespace: An AsyncNamespace, or an object with coroutine methods of the same names. Missing methods are
            unsupported operations. For requests with the identity of each caller, the open `CallerNamespaces`, which
            need an `oidc_issuer`; locations are then allowed only below `allow_locations`.
        host: The address or name to listen on.
        port: The port to listen on; 0 selects a free one.
        token: The token of the owner, who may do everything; None creates a random one, unless there are `tokens`.
        tokens: A file of further principals, as `lance-ns token` writes it. Its changes take effect within a second.
        oidc_issuer: An OpenID Connect issuer, whose tokens have the rights of the rules in `tokens`. It must be
            reachable at the start; later, the last keys stay in use. Needs the extra `oidc`.
        audience: What the issuer's tokens must be for (`aud`).
        oidc_client_id: The client of the issuer by which browsers sign in to the web pages of `ui`; None lets them
            sign in with tokens only. The issuer must allow it the redirect to the path `/ui/callback`.
        oidc_client_secret_file: A file with the secret of that client; None for a public client.
        oidc_scope: Scopes to request beside `openid`, separated by spaces.
        public_url: The address by which browsers know the server, such as "https://lake.example.com"; None means that
            of each request, which is wrong behind a proxy that ends TLS.
        read_only: Whether all principals, including the owner, may only read.
        delimiter: Joins the names of an id, unless a request sets another delimiter.
        tls: TLS configuration; None for plain HTTP.
        hosts: Additional host names to accept if `host` is a loopback address.
        max_bytes: Maximum row bytes in a request, both compressed and decompressed; 0 refuses all rows.
        max_answer_bytes: Maximum row bytes in a response.
        max_held_bytes: Maximum bytes of all concurrent requests and responses; None means four times the larger one
            of the limits above, but at least 512 MiB.
        functions: SQL functions that clients may call in addition to `gateway.sql_functions.FUNCTIONS`.
        allow_locations: Folders, as absolute paths or URIs, below which clients may declare and register tables, in
            addition to the folders of the catalog. None allows any location, and storage options in requests.
        grace: Seconds that requests in progress have to finish when the context ends.
        idle: Seconds that a connection may stay without a complete request, and a body or a response without progress.
            The head of the first request must arrive within 30 seconds or `idle`, and a body faster than 4 KiB/s.
        max_connections: Maximum number of connections from one address. A proxy in front of the server is one address.
        max_watches: Maximum number of concurrent watches; 0 refuses all.
        heartbeat: Maximum seconds between two parts of the response to a watch.
        ui: Whether to serve web pages of the catalog at `/ui`, for browsers that sign in with the token.
        tracer: Records a span for each request, as `telemetry.RequestTracer` does; None for no spans. For the calls of
            the namespace, use `telemetry.instrument`.
        audit_log: The handler of `request_log.log` that must be able to write before a change is made; None for none.
    """
    limits = Limits(
        max_bytes=max_bytes,
        max_answer_bytes=max_answer_bytes,
        max_held_bytes=max_held_bytes,
        functions=frozenset(functions),
    )
    if token is None and tokens is None:
        token = secrets.token_urlsafe(32)
    with_issuer, with_client = (oidc_issuer, "oidc_issuer=URL"), (oidc_client_id, "oidc_client_id=ID")
    with_rules = (tokens, "tokens=FILE with [[oidc]] rules")
    _require("oidc_issuer", oidc_issuer, (audience, "audience=NAME"), with_rules)
    _require("audience", audience, with_issuer)
    _require("oidc_client_id", oidc_client_id, with_issuer, (ui or None, "ui=True"))
    _require("oidc_client_secret_file", oidc_client_secret_file, with_client)
    _require("oidc_scope", oidc_scope, with_client)
    issuer = flow = None
    if oidc_issuer is not None and audience is not None:
        issuer = Issuer(oidc_issuer, audience, () if oidc_client_id is None else ENDPOINTS)
        if oidc_client_id is not None:
            flow = CodeFlow(issuer, oidc_client_id, oidc_client_secret_file, oidc_scope)
    namespaces = namespace if isinstance(namespace, CallerNamespaces) else SharedNamespace(namespace)
    if issuer is None and not namespaces.is_shared:
        raise err.InvalidInputError("identity: callers need tokens of an identity provider; set oidc_issuer")
    if public_url is not None:
        public_url, public_host = _check_public_url(public_url)
        hosts = (*hosts, public_host)
        if public_url.startswith("http:") and not wire.is_loopback(public_host):
            log.warning("gateway: browsers use %s: tokens and cookies are not encrypted; use https://", public_url)
    access = Access.to(host, Tokens(tokens, token), issuer, hosts)
    if issuer is None and access.tokens.rules():
        log.warning("gateway: %s has [[oidc]] rules, but no issuer is set: its tokens get status 401", tokens)
    elif issuer is not None and not access.tokens.rules():
        log.warning("gateway: %s has no [[oidc]] rule: tokens of the issuer get status 403 until it has one", tokens)
    explorer = None
    if ui:
        # It needs an extra.
        from lance_ns_async.gateway.explorer.site import Explorer

        explorer = Explorer(
            namespaces, access, idle, limits.memory, token, read_only=read_only, flow=flow, public_url=public_url
        )
    _check_limits(delimiter, grace, idle, max_connections)
    metrics = Metrics(getattr(namespace, "snapshot", None), audit_log)
    changes = asyncio.TaskGroup()
    watches = Watches(max_watches, heartbeat)
    server = wire.HttpServer(
        _Handler(
            namespaces,
            access,
            metrics,
            changes,
            delimiter,
            limits,
            Memory(limits.memory),
            # What is in a folder of the catalog may belong to another caller.
            AllowedLocations(namespace if namespaces.is_shared else None, allow_locations),
            idle,
            read_only,
            Readiness(namespaces),
            explorer,
            tracer,
            watches,
            audit_log,
        ),
        head_time=min(_HEAD_TIME, idle),
        handler_cancellation=True,
        access_log=None,
        logger=_wire_log,
        keepalive_timeout=idle,
        lingering_time=min(_LINGER, idle),
        max_line_size=_MAX_LINE,
        max_field_size=_MAX_FIELD,
        # The rest of a refused body is still read, and must not be decompressed.
        auto_decompress=False,
    )
    observe = getattr(namespace, "observe", None)
    with nullcontext() if observe is None else observe(metrics.record):
        async with issuer or nullcontext(), _run_server(server, changes, watches, grace, metrics) as runner:
            bound = await listen(runner, host, port, tls, max_connections)
            url = url_of(host, bound, tls)
            yield Gateway(
                url, token or "", metrics, watches, f"{url}{explorer.link.path}" if explorer and explorer.link else ""
            )


@asynccontextmanager
async def _run_server(
    server: web.Server, changes: asyncio.TaskGroup, watches: Watches, grace: float, metrics: Metrics
) -> AsyncIterator[web.ServerRunner]:
    """Yields the server's runner; at the end, waits at most `grace` seconds for requests in progress."""
    # The runner waits this long for responses and then again for connections; 0 would mean no limit.
    runner = web.ServerRunner(server, shutdown_timeout=max(grace, 0.001) / 2)
    await runner.setup()
    await changes.__aenter__()
    try:
        yield runner
    finally:
        end = asyncio.get_running_loop().time() + grace
        watches.stop()
        with anyio.CancelScope(shield=True):
            try:
                await runner.cleanup()
            finally:
                # Requests still in progress were cancelled, or will be now.
                metrics.cut_all()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(end):
                        # The task group gets no error of the block: it would cancel the changes, and wrap the error.
                        await changes.__aexit__(None, None, None)


@dataclass(frozen=True, slots=True)
class _Handler:
    """Handles requests."""

    namespaces: SharedNamespace | CallerNamespaces
    access: Access
    metrics: Metrics
    changes: asyncio.TaskGroup  # Holds changes, which must run to their end even if no client waits for them.
    delimiter: str
    limits: Limits
    memory: Memory
    locations: AllowedLocations
    idle: float
    read_only: bool
    readiness: Readiness
    explorer: Explorer | None
    tracer: TraceRequest | None
    watches: Watches
    audit_log: AuditLog | None

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        wire.end_head(request)
        path = request.raw_path.partition("?")[0]
        entry = RequestLog.start(_request_id(request), request.remote, f"{request.method} {path}")
        trace = nullcontext() if self.tracer is None else self.tracer(request.method, request.headers)
        with trace as finish, self.metrics.count_request(entry), self.memory.share() as share:
            try:
                response = await responses.respond(self._answer(request, share, entry), log)
                response.headers[_REQUEST_ID] = entry.request_id
                entry.code = str(response.status)
                return await wire.send(request, response, self.idle)
            except asyncio.CancelledError:
                if not wire.has_client_left(request):
                    self.metrics.count_cut_off(entry)
                raise
            finally:
                if not entry.is_change:
                    entry.write(entry.code)
                if finish is not None:
                    finish(entry.operation, entry.code)

    async def _answer(self, request: web.BaseRequest, share: Share, entry: RequestLog) -> web.Response | EventStream:
        path, _, query = request.raw_path.partition("?")
        if self.explorer is not None and self.explorer.serves(path):
            with guard.apply(RemoteGuard(self.limits, share)):
                return await self.explorer.answer(request, share, entry, self._change)
        self.access.check_sender(request.headers)
        method = "GET" if request.method == "HEAD" else request.method
        if (method, path) == ("GET", "/health"):
            return _health()
        if (method, path) == ("GET", "/ready"):
            return await self.readiness.respond()
        principal = await self.access.identify(request.headers, entry)
        if (method, path) == ("GET", "/metrics"):
            # The names of other callers are for clients that monitor the gateway, which are no callers themselves.
            is_caller = principal.token is not None and not self.namespaces.is_shared
            return responses.text_response(self.metrics.text(clients=not (principal.only or is_caller)))
        if (method, path) == ("GET", "/openapi.json"):
            operations = [name for name in BY_OPERATION if hasattr(self.namespaces.model, name)]
            return responses.json_response(await asyncio.to_thread(openapi.document, operations))
        route, names = _match_route(method, path)
        entry.operation = route.operation
        if self.read_only and route.changes:
            raise err.PermissionDeniedError(f"Permission denied: {route.operation} (this server is read-only)")
        if not hasattr(self.namespaces.model, route.operation):
            raise err.UnsupportedOperationError(
                f"Not supported: {route.operation} (the namespace of this gateway does not have this operation)"
            )
        arguments = await self._read_arguments(request, route, names, query, share, principal, entry)
        if route.answer == "events":

            async def check_rights() -> None:
                if await self.access.identify(request.headers, entry) != principal:
                    message = f"Permission denied: watch (the rights of {principal.name} have changed; connect again)"
                    raise err.PermissionDeniedError(message)

            use = self.namespaces.use(principal)
            return await self.watches.start(use, arguments[0], principal, check_rights, share)
        work = partial(self._perform, route, arguments, share, principal)
        if route.changes:
            return await self._change(work, entry)
        response = await work()
        if route.answer != "fields":
            return response
        return responses.unless_unchanged(response, request.headers.get("If-None-Match"))

    async def _change(self, work: Callable[[], Awaitable[web.Response]], entry: RequestLog) -> web.Response:
        """Makes a change, which goes on if the client leaves."""
        if self.audit_log is not None and not self.audit_log.allows_changes():
            raise responses.unavailable("the audit log cannot be written, so nothing was changed")
        entry.is_change = True
        return await asyncio.shield(self.changes.create_task(self._finish_change(work(), entry)))

    async def _finish_change(self, work: Awaitable[web.Response], entry: RequestLog) -> web.Response:
        """Returns the response to a change, and logs it; its client may have disconnected before."""
        status = "cancelled"
        try:
            # An error in the task group would end the server.
            response = await responses.respond(work, log)
            status = str(response.status)
            return response
        except asyncio.CancelledError:
            self.metrics.count_cut_off(entry)
            raise
        finally:
            entry.write(status)

    async def _read_arguments(
        self,
        request: web.BaseRequest,
        route: Route,
        names: Mapping[str, str],
        query: str,
        share: Share,
        principal: Principal,
        entry: RequestLog,
    ) -> tuple[Any, ...]:
        """Returns the arguments of the namespace's method, after a check of the principal's rights."""
        content = b""
        if route.method == "POST" and route.body != "rows":
            content = await body(request, _MAX_JSON, self.idle, "JSON", share)
            share.take(_PARSED_JSON * len(content))

        def parse() -> BaseModel:
            model = parsing.parse(route, names, query, content, self.delimiter)
            entry.name(getattr(model, "id", None))
            principal.check(route.operation, model)
            return model

        # Patterns are compiled, and compared with ids.
        is_large = len(content) + len(request.raw_path) > _LARGE or route.operation in ("search_many", "watch")
        model = await threads.aside(parse, "texts") if is_large else parse()
        # Rows are read only from those who may write them.
        if route.body == "rows":
            return model, await body(request, self.limits.max_bytes, self.idle, "rows", share)
        return (model,)

    async def _perform(
        self, route: Route, arguments: tuple[Any, ...], share: Share, principal: Principal
    ) -> web.Response:
        # A change may outlast its request.
        with share.keep(), guard.apply(RemoteGuard(self.limits, share)), self.namespaces.use(principal) as namespace:
            await self.locations.check(arguments[0])
            granted = GrantedNamespace(namespace, principal)
            return responses.result(route, await getattr(granted, route.operation)(*arguments))


def _match_route(method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    if (result := match(path)) is None:
        raise RequestError(404, "Not supported: no operation has this path; paths begin with /v1")
    route, names = result
    if method != route.method:
        message = f"Not supported: {route.operation} requires the method {route.method}, not {method}"
        raise RequestError(405, message, {"Allow": route.method})
    return route, names


def _request_id(request: web.BaseRequest) -> str:
    """Returns the id that the client gave the request, or a new one."""
    requested = request.headers.get(_REQUEST_ID, "")
    return requested if _PLAIN_ID.fullmatch(requested) else uuid4().hex


def _health() -> web.Response:
    """Returns 200 `ok` if data operations can start now, else 503 `busy`."""
    load = threads.load()
    if not load.is_full:
        return responses.json_response({"status": "ok"})
    status = {"status": "busy", "threads": threads.THREADS, "running": load.running, "given_up": load.given_up}
    return responses.json_response(status, status=503, headers={"Retry-After": "10"})


def _require(name: str, value: object, *companions: tuple[object, str]) -> None:
    """Raises InvalidInputError if an argument is set without its companions, which have a value and a description."""
    missing = [description for companion, description in companions if companion is None]
    if value is not None and missing:
        raise err.InvalidInputError(f"{name}: requires {' and '.join(missing)}")


def _check_public_url(url: str) -> tuple[str, str]:
    """Returns the address without a slash at its end, and its host; raises InvalidInputError if it has more parts."""
    parts = re.fullmatch(r"(https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?)/?", url)
    if parts is None:
        raise err.InvalidInputError(f"public_url {url!r}: must be scheme and host, such as https://lake.example.com")
    return parts[1], parts[2].strip("[]")


def _check_limits(delimiter: str, grace: float, idle: float, max_connections: int) -> None:
    if not delimiter:
        raise err.InvalidInputError("delimiter: must not be empty; the default is '$'")
    if not grace >= 0:
        raise err.InvalidInputError(f"grace {grace}: must be a number of seconds, at least 0")
    if not idle > 0:
        raise err.InvalidInputError(f"idle {idle}: must be a number of seconds above 0")
    if max_connections < 1:
        raise err.InvalidInputError(f"max_connections {max_connections}: must be at least 1")


async def listen(
    runner: web.ServerRunner, host: str, port: int, tls: ssl.SSLContext | None, max_connections: int
) -> int:
    """Listens on an address, and returns the port. Raises InvalidInputError if the address cannot be used."""
    try:
        for listener in await listeners(host, port, max_connections):
            await web.SockSite(runner, listener, ssl_context=tls, backlog=_BACKLOG).start()
    except OSError as e:
        # Port 0 means any, so it is not the reason.
        address = f"host {host}, port {port}" if port else f"host {host}"
        raise err.InvalidInputError(f"{address}: cannot listen there ({e.strerror})") from e
    bound_port: int = runner.addresses[0][1]
    return bound_port


def url_of(host: str, port: int, tls: ssl.SSLContext | None) -> str:
    """Returns the address of a server for its clients."""
    try:
        address = ip_address(host)
    except ValueError:
        address_text = host
    else:
        # Clients cannot connect to the unspecified address.
        named = "127.0.0.1" if address.version == 4 else "::1"
        text = named if address.is_unspecified else host
        address_text = f"[{text}]" if address.version == 6 else text
    return f"{'http' if tls is None else 'https'}://{address_text}:{port}"


def _without_trace(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


_wire_log = logging.getLogger(f"{__name__}.http")
"""The logger for aiohttp's reports of malformed requests; their content is left out, because it may be a token."""
_wire_log.addFilter(_without_trace)


_FRESH = 2.0  # Seconds for which an answer is repeated, because requests without a token must not load the catalog.
_PATIENCE = 5.0  # Maximum seconds that the catalog has to answer.

_DOWN = (err.ServiceUnavailableError, err.ThrottlingError, err.InternalError, err.UnauthenticatedError, TimeoutError)


class Readiness:
    """Asks the catalog for its first namespace; concurrent and frequent requests share one call."""

    def __init__(self, namespaces: SharedNamespace | CallerNamespaces) -> None:
        self._namespace = namespaces.model
        # Without an identity, a catalog that is up answers so.
        self._is_up = () if namespaces.is_shared else (err.UnauthenticatedError,)
        self._until = 0.0
        self._is_ready = False
        self._lock = asyncio.Lock()

    async def respond(self) -> web.Response:
        """Returns 200 `ok` if the catalog answers, else 503."""
        async with self._lock:
            if monotonic() >= self._until:
                self._is_ready = await self._ask()
                self._until = monotonic() + _FRESH
        if self._is_ready:
            return responses.json_response({"status": "ok"})
        return responses.json_response(
            {"status": "the catalog does not answer"}, status=503, headers={"Retry-After": "5"}
        )

    async def _ask(self) -> bool:
        list_namespaces: Any = getattr(self._namespace, "list_namespaces", None)
        if list_namespaces is None:
            return True
        try:
            async with asyncio.timeout(_PATIENCE):
                await list_namespaces(ListNamespacesRequest(id=[], limit=1))
        except _DOWN as e:
            return isinstance(e, self._is_up)
        except err.LanceNamespaceError:
            pass  # The catalog has answered.
        return True
