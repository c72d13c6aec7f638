"""The server: listens, lets in who may ask, hands each request to the namespace, and ends in peace."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from traceback import format_exception
from typing import Any
from uuid import uuid4

import anyio
from aiohttp import web
from lance_namespace.errors import ErrorCode, InvalidInputError, LanceNamespaceError, UnsupportedOperationError

from lance_ns_async.errors import one_line
from lance_ns_async.gateway import answers, asking, wire
from lance_ns_async.gateway.access import TOKEN_HEADER, Access
from lance_ns_async.gateway.answers import Refused
from lance_ns_async.gateway.bodies import body
from lance_ns_async.gateway.limits import MAX_ANSWER_BYTES, MAX_BYTES, Limits, Memory, Share
from lance_ns_async.gateway.metrics import Metrics, Seen
from lance_ns_async.gateway.routes import Route, match
from lance_ns_async.storage import threads
from lance_ns_async.tables import bounds

log = logging.getLogger(__name__)

_MAX_JSON = 4 << 20
_PARSED_JSON = 16
"""Bytes that a byte of JSON takes once it is read, at most: floats and short texts take that much."""

_LARGE_JSON = 64 << 10
"""Bytes of JSON that are read in a thread, so that other requests go on."""
_MAX_LINE = 64 << 10
"""Bytes of the request's first line: properties and storage options of a table to be made are in it."""

_LINGER = 10.0
"""Seconds in which a client whose body is not read can end it, and so come to read why."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A server that is running: where it is, and what it wants to see."""

    url: str
    token: str = field(repr=False)
    metrics: Metrics = field(repr=False)

    @property
    def cut_off(self) -> int:
        """How many requests were still under way when the grace was over; known when the block has ended."""
        return self.metrics.cut_off

    @property
    def headers(self) -> Mapping[str, str]:
        """What every request has to carry. Spark hides headers of such a name, and identities leave it alone."""
        return {TOKEN_HEADER: self.token}


@asynccontextmanager
async def serving(
    namespace: object,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    delimiter: str = "$",
    tls: ssl.SSLContext | None = None,
    hosts: Iterable[str] = (),
    max_bytes: int = MAX_BYTES,
    max_answer_bytes: int = MAX_ANSWER_BYTES,
    max_held_bytes: int | None = None,
    functions: Iterable[str] = (),
    grace: float = 30.0,
    idle: float = 120.0,
) -> AsyncIterator[Gateway]:
    """Serves a namespace as a Lance REST Namespace while the context is open; the namespace stays open after it.

    `namespace` is an AsyncNamespace or anything with coroutine methods of the same names; one that it lacks is
    unsupported. Port 0 takes a free one, and without a `token` there is a random one. `hosts` are further names
    under which a server on a loopback address is asked for. A connection may be without a whole request for `idle`
    seconds, and a body or an answer go no further for as long. At the end what is under way has `grace` seconds to
    finish. What has not by then is cut off, and counted in `Gateway.cut_off`. Threads that Lance does not come back to
    are left behind, and keep the process from ending.

    `max_bytes` bounds the rows that a request sends, as they come and decompressed; `max_answer_bytes` those of an
    answer; `max_held_bytes` both for all requests at once, and is four times the larger one, but at least 512 MiB,
    unless it is given. `functions` are SQL functions that clients may call besides `tables.filters.FUNCTIONS`. Raises
    InvalidInputError where it cannot listen.
    """
    limits = Limits(
        max_bytes=max_bytes,
        max_answer_bytes=max_answer_bytes,
        max_held_bytes=max_held_bytes,
        functions=frozenset(functions),
    )
    access = Access.to(host, token, hosts)
    _check_limits(delimiter, grace, idle)
    metrics = Metrics()
    changes = asyncio.TaskGroup()
    server = wire.Server(
        _Handler(namespace, access, metrics, changes, delimiter, limits, Memory(limits.held), idle),
        handler_cancellation=True,
        access_log=None,
        logger=_wire_log,
        keepalive_timeout=idle,
        lingering_time=min(_LINGER, idle),
        max_line_size=_MAX_LINE,
        # What is refused is still read to its end, and shall not be decompressed for that.
        auto_decompress=False,
    )
    observe = getattr(namespace, "observe", None)
    with nullcontext() if observe is None else observe(metrics.called):
        async with _running(server, changes, grace, metrics) as runner:
            bound = await _listen(runner, host, port, tls)
            yield Gateway(_url(host, bound, tls), access.token, metrics)


@asynccontextmanager
async def _running(
    server: web.Server, changes: asyncio.TaskGroup, grace: float, metrics: Metrics
) -> AsyncIterator[web.ServerRunner]:
    """The server's runner; leaving it waits for what is under way, for `grace` seconds at most."""
    # The runner waits so long for the answers and then for the connections, and for ever where it is told 0.
    runner = web.ServerRunner(server, shutdown_timeout=max(grace, 0.001) / 2)
    await runner.setup()
    await changes.__aenter__()
    try:
        yield runner
    finally:
        end = asyncio.get_running_loop().time() + grace
        with anyio.CancelScope(shield=True):
            try:
                await runner.cleanup()
            finally:
                # What is under way by now was cancelled, or is about to be.
                metrics.cut_all()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(end):
                        # Not told of an error inside: it would end the changes for it, and wrap it.
                        await changes.__aexit__(None, None, None)


@dataclass(frozen=True, slots=True)
class _Handler:
    """Answers requests."""

    namespace: object
    access: Access
    metrics: Metrics
    changes: asyncio.TaskGroup
    """Holds what must not stop half-way, though nobody waits for its outcome any more."""
    delimiter: str
    limits: Limits
    memory: Memory
    idle: float

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        with self.metrics.request() as seen, self.memory.share() as share:
            try:
                response = await _told(self._answer(request, seen, share))
                seen.code = str(response.status)
                return await wire.send(request, response, self.idle)
            except asyncio.CancelledError:
                if not wire.has_client_left(request):
                    self.metrics.cut(seen)
                raise

    async def _answer(self, request: web.BaseRequest, seen: Seen, share: Share) -> web.Response:
        self.access.check_sender(request.headers)
        path, _, query = request.raw_path.partition("?")
        if (request.method, path) == ("GET", "/health"):
            return _health()
        self.access.check_token(request.headers)
        if (request.method, path) == ("GET", "/metrics"):
            return answers.text_response(self.metrics.text())
        route, names = _found(request.method, path)
        seen.operation = route.operation
        if not hasattr(self.namespace, route.operation):
            raise UnsupportedOperationError(f"Not supported: {route.operation} (nothing behind this gateway does it)")
        work = self._done(route, await self._asked(request, route, names, query, share), share)
        # Told of within: what a change raised would end the server.
        if not route.changes:
            return await work
        return await asyncio.shield(self.changes.create_task(self._changed(work, seen)))

    async def _changed(self, work: Awaitable[web.Response], seen: Seen) -> web.Response:
        """Returns the answer to a change, whose client may have left by then."""
        try:
            return await _told(work)
        except asyncio.CancelledError:
            self.metrics.cut(seen)
            raise

    async def _asked(
        self, request: web.BaseRequest, route: Route, names: Mapping[str, str], query: str, share: Share
    ) -> tuple[Any, ...]:
        """What the namespace's method is called with."""
        if route.body == "rows":
            # First what can be refused without them.
            asked = asking.request(route, names, query, b"", self.delimiter)
            return asked, await body(request, self.limits.max_bytes, self.idle, "rows", share)
        content = await body(request, _MAX_JSON, self.idle, "JSON", share) if route.method == "POST" else b""
        share.take(_PARSED_JSON * len(content))
        if len(content) > _LARGE_JSON:
            return (await asyncio.to_thread(asking.request, route, names, query, content, self.delimiter),)
        return (asking.request(route, names, query, content, self.delimiter),)

    async def _done(self, route: Route, asked: tuple[Any, ...], share: Share) -> web.Response:
        # A change may outlast its request.
        with share.kept(), bounds.applied(self.limits.bounds(share)):
            return answers.response(route, await getattr(self.namespace, route.operation)(*asked))


async def _told(work: Awaitable[web.Response]) -> web.Response:
    """Returns the answer of the work, or the one that tells its error; raises only what ends tasks or the process."""
    try:
        try:
            return await work
        except (LanceNamespaceError, Refused) as error:
            return answers.error(error)
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # the outermost place: errors nobody foresaw, panics of Rust among them, go to the log
        instance = uuid4().hex
        # As a log can hold it: without control characters, and without what is no UTF-8.
        trace = "\n".join(map(one_line, "".join(format_exception(e)).splitlines()))
        log.error("gateway: %s\n%s", instance, trace)
        return answers.internal(instance)


def _found(method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    if (matched := match(path)) is None:
        raise Refused(404, ErrorCode.UNSUPPORTED, "Not supported: there is nothing at this path; operations are at /v1")
    if method != matched[0].method:
        message = f"Not supported: {matched[0].operation} is asked by {matched[0].method}, not by {method}"
        raise Refused(405, ErrorCode.UNSUPPORTED, message, {"Allow": matched[0].method})
    return matched


def _health() -> web.Response:
    """Whether operations on data would be begun now: 200 and `ok`, or else 503 and `busy`."""
    load = threads.load()
    if not load.is_full:
        return answers.json_response({"status": "ok"})
    told = {"status": "busy", "threads": threads.THREADS, "running": load.running, "given_up": load.given_up}
    return answers.json_response(told, status=503, headers={"Retry-After": "10"})


def _check_limits(delimiter: str, grace: float, idle: float) -> None:
    if not delimiter:
        raise InvalidInputError("delimiter: it is empty; ids are joined by it in paths, usually by '$'")
    if not grace >= 0:
        raise InvalidInputError(f"grace {grace}: it is a number of seconds; 0 not to wait")
    if not idle > 0:
        raise InvalidInputError(f"idle {idle}: it is a number of seconds above 0")


async def _listen(runner: web.ServerRunner, host: str, port: int, tls: ssl.SSLContext | None) -> int:
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    except OSError as e:
        raise InvalidInputError(f"gateway: it cannot listen on {host}, port {port}: {e.strerror}") from e
    found: int = runner.addresses[0][1]
    return found


def _url(host: str, port: int, tls: ssl.SSLContext | None) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        shown = host
    else:
        # Nothing can be reached at the address that stands for all.
        named = "127.0.0.1" if address.version == 4 else "::1"
        text = named if address.is_unspecified else host
        shown = f"[{text}]" if address.version == 6 else text
    return f"{'http' if tls is None else 'https'}://{shown}:{port}"


def _without_trace(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


_wire_log = logging.getLogger(f"{__name__}.http")
"""Where aiohttp tells of requests that are no HTTP: without what was in them, for that may be a token."""
_wire_log.addFilter(_without_trace)
