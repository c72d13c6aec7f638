"""An httpx transport on aiohttp's session, because httpx's own pool slows down with each concurrent request."""

from __future__ import annotations

import asyncio
import io
import re
import ssl
import warnings
import weakref
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import cache, cached_property
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio.to_thread
import httpx
from aiohttp import hdrs
from multidict import CIMultiDict
from yarl import URL

from lance_ns_async.transports.http.reuse import Trust

ProxyOf = Callable[[str], str | None]
"""Returns the proxy for an origin such as `https://host:443`; None for no proxy."""

WITHDRAW = "lance_ns_async.withdraw"
"""Response extension: a function that excludes all open connections from reuse, for a mismatched response."""

_PIECES_FROM = 2**20
"""Size in bytes above which a request's body is sent in pieces, so that it does not block the event loop."""

_WANTS_CREDENTIALS = 407  # The status of a proxy that requires credentials.


class ResponseTooLargeError(httpx.TransportError):
    """The response is longer than the limit."""


class UntrustedError(httpx.ConnectError):
    """The server's certificate is not trusted."""


class WireClosedError(httpx.TransportError):
    """The transport was closed before this request, or before its retry."""


class StreamedBody(httpx.AsyncByteStream):
    """A request body that is produced while it is sent; it can be sent only once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        """Creates a body.

        Args:
            pieces: The parts of the body; they are produced in a worker thread, each after the last one was sent.
        """
        self._pieces = pieces
        self.is_started: bool = False
        """Whether a part was requested, so that the body cannot be sent again."""
        self.error: Exception | None = None
        """The error of producing a part; the request then ends without its last bytes, so servers reject it."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_started = True
        try:
            while (piece := await anyio.to_thread.run_sync(self._next, abandon_on_cancel=True)) is not None:
                yield piece
        except Exception as e:
            self.error = e
            raise

    def _next(self) -> bytes | None:
        return next(self._pieces, None)


class EncodedRequest(httpx.Request):
    """A request to a URL that is already encoded, and that is parsed only if `url` is read.

    Parsing and re-encoding URLs would be a tenth of the work of a whole call.
    """

    def __init__(self, method: str, text: str, headers: httpx.Headers, content: bytes | StreamedBody | None) -> None:
        self.method = method
        self.text = text
        self.headers = headers
        self.extensions: dict[str, Any] = {}
        self.data: bytes | io.BytesIO | StreamedBody | None = content
        """The body for aiohttp; a large one is a file, which aiohttp sends in pieces."""
        self._content = content if isinstance(content, bytes) else b""
        if len(self._content) > _PIECES_FROM:
            self.data = io.BytesIO(self._content)

    def usual(self, timeout: httpx.Timeout) -> httpx.Request:
        """Returns the request as httpx makes it, for other transports than this one."""
        content = self.data if isinstance(self.data, StreamedBody) else self._content or None
        extensions = {"timeout": timeout.as_dict()}
        return httpx.Request(self.method, self.text, headers=self.headers, content=content, extensions=extensions)

    @cached_property
    def url(self) -> httpx.URL:  # type: ignore[override]
        """The URL as httpx parses it."""
        return httpx.URL(self.text)


class FixedHeaders(httpx.Headers):
    """Headers that are never changed, so that the wire converts them only once; `copy` returns others."""

    @cached_property
    def pairs(self) -> CIMultiDict[str]:
        """The headers in aiohttp's form."""
        return CIMultiDict(self.multi_items())


class WholeResponse(httpx.Response):
    """A response whose body is already read; httpx's own constructor spends more time on this."""

    def __init__(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, extensions: dict[str, Any]
    ) -> None:
        self.status_code = status
        self._pairs = headers
        self._content = body
        self._request = None
        self.extensions = extensions
        self.default_encoding = "utf-8"
        self.is_closed = self.is_stream_consumed = True

    @cached_property
    def headers(self) -> httpx.Headers:  # type: ignore[override]
        """The headers, which are converted only if they are read."""
        return httpx.Headers(self._pairs)


class _PlainRequest(aiohttp.ClientRequest):
    """A request with the headers that are passed to it, and no others."""

    def update_headers(self, headers: Any) -> None:
        # The superclass copies the headers one by one.
        self.headers = CIMultiDict()
        if hdrs.HOST not in headers:
            self.headers[hdrs.HOST] = self.url.host_port_subcomponent or ""
        self.headers.extend(headers)

    def update_auto_headers(self, skip_auto_headers: Any) -> None:
        # The sets of the superclass, which find out what to add, would take a twentieth of the time of a request.
        self._skip_auto_headers = skip_auto_headers


def _warn_unclosed(connector: aiohttp.TCPConnector, loop: asyncio.AbstractEventLoop) -> None:
    """Closes a connector that its wire left open, so that aiohttp does not warn in words of its own."""
    if connector.closed or (loop.is_running() and asyncio._get_running_loop() is not loop):  # noqa: SLF001
        # The thread of a sync namespace runs until the process ends, and only that thread may close its connections.
        return
    warnings.warn(
        "an AsyncNamespace was not closed: use `async with AsyncNamespace.connect(...) as ns`, or `await ns.aclose()`",
        ResourceWarning,
        stacklevel=1,
    )
    connector._close()  # noqa: SLF001


class AiohttpWire(httpx.AsyncBaseTransport):
    """Sends each request once over a pooled connection and reads the whole response, up to a limit.

    Opens no connection before the first request, and is bound to the event loop of that request. Follows no
    redirect, keeps no cookie, retries nothing, and sends the URL exactly as it was passed.
    """

    def __init__(
        self,
        *,
        connect_timeout: float,
        tls: ssl.SSLContext | None,
        proxy: ProxyOf | None,
        max_bytes: int,
        keep_alive: float = 15.0,
    ) -> None:
        """Creates a transport without connections.

        Args:
            connect_timeout: In seconds.
            tls: None means aiohttp's default context.
            proxy: None means no proxy.
            max_bytes: Maximum size of a response, before and after decompression.
            keep_alive: Seconds for which an idle connection may be reused.
        """
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)
        self._tls = tls
        self._proxy = cache(proxy or _direct)
        self._max_bytes = max_bytes
        self._keep_alive = keep_alive
        self._trust = Trust()
        self._extensions = {WITHDRAW: self._trust.withdraw}
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request and returns the whole response."""
        session = self._session or self._open()
        text = request.text if isinstance(request, EncodedRequest) else str(request.url)
        try:
            async with session.request(
                request.method,
                # Without `encoded`, yarl would turn %2E into a dot and /%2E%2E/x into /x.
                URL(text, encoded=True),
                proxy=self._proxy("/".join(text.split("/", 3)[:3])),
                # No variable, because an error collector would record it.
                headers=request.headers.pairs
                if isinstance(request.headers, FixedHeaders)
                else CIMultiDict(request.headers.multi_items()),
                data=request.data if isinstance(request, EncodedRequest) else request.content or None,
                allow_redirects=False,
            ) as answer:
                body = await self._read(answer)
                pairs: Sequence[tuple[bytes, bytes]] = answer.raw_headers
                if hdrs.CONTENT_ENCODING in answer.headers:
                    body = await self._unpack(body, ", ".join(answer.headers.getall(hdrs.CONTENT_ENCODING)))
                    pairs = [pair for pair in pairs if pair[0].lower() != b"content-encoding"]
                return WholeResponse(answer.status, pairs, body, self._extensions)
        except aiohttp.ClientConnectorCertificateError as e:
            raise UntrustedError(_connect_message(e)) from e
        except (aiohttp.ClientConnectorError, aiohttp.ClientProxyConnectionError) as e:
            raise httpx.ConnectError(_connect_message(e)) from e
        except aiohttp.ClientHttpProxyError as e:
            kind = httpx.ProxyError if e.status == _WANTS_CREDENTIALS else httpx.ConnectError
            raise kind(f"the proxy opens no tunnel: HTTP {e.status} {e.message}") from e
        except aiohttp.ConnectionTimeoutError as e:
            raise httpx.ConnectTimeout(f"no connection within {self._timeout.sock_connect:g} s") from e
        except (aiohttp.InvalidURL, UnicodeError) as e:
            raise httpx.UnsupportedProtocol(f"not a URL: {e}") from e
        except (aiohttp.ClientError, OSError) as e:
            raise httpx.ReadError(f"the connection was lost: {_message(e)}") from e

    async def aclose(self) -> None:
        """Closes the transport and all its connections; may be called twice."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise WireClosedError("the namespace was closed during the call; connect anew")
        # The caller's slots limit the connections; a second limit here would only add a hidden queue.
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True, keepalive_timeout=self._keep_alive)
        self._trust.watch(connector)
        # A finalizer, because in a cycle that is collected the session's `__del__` may be the first that is called.
        weakref.finalize(self, _warn_unclosed, connector, asyncio.get_running_loop())
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=self._timeout,
            request_class=_PlainRequest,
            # aiohttp would send a default Content-Type even without a body.
            skip_auto_headers=(hdrs.CONTENT_TYPE,),
        )
        # aiohttp would send a DELETE again on its own if a reused connection is dead.
        self._session._retry_connection = False  # noqa: SLF001
        return self._session

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        # The Content-Length of a response to HEAD is that of the omitted body.
        length = 0 if answer.method == "HEAD" else answer.content_length
        if length is not None and length <= self._max_bytes:
            return await answer.read()
        chunks: list[bytes] = []
        size = length or 0
        if size <= self._max_bytes:
            size = 0
            async for chunk in answer.content.iter_any():
                chunks.append(chunk)
                size += len(chunk)
                if size > self._max_bytes:
                    break
            else:
                return b"".join(chunks)
        answer.close()
        raise _too_large(self._max_bytes)

    async def _unpack(self, body: bytes, encoding: str) -> bytes:
        """Decompresses a body that the server compressed without request, up to the limit."""
        try:
            return await unpack(body, encoding, self._max_bytes)
        except UnpackError as e:
            raise httpx.DecodingError(str(e)) from e
        except TooLongError:
            raise _too_large(self._max_bytes) from None


class OtherWire(httpx.AsyncBaseTransport):
    """Sends each request once over another transport and reads the whole response, up to a limit."""

    def __init__(self, transport: httpx.AsyncBaseTransport, *, connect_timeout: float, max_bytes: int) -> None:
        """Wraps a transport, which is closed with this one.

        Args:
            connect_timeout: In seconds.
            max_bytes: Maximum size of a response after decompression.
        """
        self._transport = transport
        self._timeout = httpx.Timeout(None, connect=connect_timeout)
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request and returns the whole response."""
        if isinstance(request, EncodedRequest):
            request = request.usual(self._timeout)
        response = await self._transport.handle_async_request(request)
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._max_bytes:
                    raise _too_large(self._max_bytes)
        finally:
            await response.aclose()
        return WholeResponse(response.status_code, response.headers.raw, bytes(body), {})

    async def aclose(self) -> None:
        """Closes the transport; may be called twice."""
        await self._transport.aclose()


def _too_large(most: int) -> ResponseTooLargeError:
    return ResponseTooLargeError(f"the answer is longer than {most} bytes (max_response_bytes)")


def environment_proxy(url: str) -> str | None:
    """Returns the proxy for `url` by HTTP_PROXY, HTTPS_PROXY and NO_PROXY; None for no proxy."""
    parts = urlsplit(url)
    proxies = getproxies()
    if (host := parts.hostname) is None or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if any(_is_direct(host, port, entry) for entry in re.split(r"[\s,]+", proxies.get("no", "").lower())):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def _is_direct(host: str, port: int, entry: str) -> bool:
    """Returns whether an entry of NO_PROXY, in lower case, names a host, as in Go and requests.

    An entry is `*`, an address, a range of addresses, or a name, which includes those below it; except for `*`, also
    with a port.
    """
    name, _, number = entry.rpartition(":") if re.fullmatch(r"([^:]*|\[.*\]):[0-9]{1,5}", entry) else (entry, "", "")
    if number and int(number) != port:
        return False
    try:
        return ip_address(host) in ip_network(name.strip("[]"), strict=False)
    except ValueError:
        domain = name.removeprefix("*").removeprefix(".")
        return entry == "*" or (domain != "" and f".{host}".endswith(f".{domain}"))


def _direct(origin: str) -> None:
    """Returns no proxy for any origin."""


def _message(e: Exception) -> str:
    # aiohttp's message about incomplete headers is the repr of the headers received so far.
    message = " ".join(str(e).split())
    return message if message and not message.startswith("<") else type(e).__name__


_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""Reasons of OpenSSL for a response that is not TLS."""


def _connect_message(e: aiohttp.ClientError) -> str:
    to_proxy = " to the proxy" if isinstance(e, aiohttp.ClientProxyConnectionError) else ""
    cause = e.__cause__ or e
    if getattr(cause, "reason", None) in _NOT_TLS:
        return f"cannot connect{to_proxy}: the server does not speak TLS on this port; use http:// instead of https://"
    return f"cannot connect{to_proxy}: {cause}"


_CHUNK_BYTES = 256 * 1024
"""Maximum number of bytes that are decompressed on the event loop, which takes less than a millisecond."""

_PIECE = 1024 * 1024


class UnpackError(Exception):
    """A body that does not match its Content-Encoding, or that has an unsupported one."""


class TooLongError(Exception):
    """A body that is longer than the limit when decompressed."""


async def unpack(content: bytes, encoding: str, limit: int) -> bytes:
    """Returns the decompressed body.

    Args:
        content: The body as it was received.
        encoding: The value of Content-Encoding; `identity` and an empty value mean that the body is not compressed.
        limit: Maximum size of the decompressed body in bytes.
    """
    method = encoding.strip().lower()
    if method in ("", "identity"):
        return content
    if method not in _WINDOWS:
        raise UnpackError(f"its Content-Encoding is {encoding[:60]!r}, and only gzip or deflate are read, once")
    if not content:
        # A response to HEAD, or one without a body, has nothing to decompress.
        return content
    unpacking = zlib.decompressobj(_WINDOWS[method](content))

    def some(data: bytes, most: int) -> bytes:
        try:
            return unpacking.decompress(data, most)
        except zlib.error as e:
            raise UnpackError(str(e)) from e

    def rest(begin: bytes) -> bytes:
        # The body is decompressed in pieces, because copying one blocks other threads, and so the event loop.
        pieces, size = [begin], len(begin)
        while size <= limit and not unpacking.eof:
            piece = some(unpacking.unconsumed_tail, min(limit + 1 - size, _PIECE))
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    # One byte more than the limit shows that the body is too long.
    body = some(content, min(limit + 1, _CHUNK_BYTES))
    if not unpacking.eof and len(body) == _CHUNK_BYTES <= limit:
        body = await anyio.to_thread.run_sync(rest, body, abandon_on_cancel=True)
    if len(body) > limit:
        raise TooLongError
    if not unpacking.eof:
        raise UnpackError("it breaks off")
    if unpacking.unused_data:
        raise UnpackError(f"{len(unpacking.unused_data)} bytes follow its end")
    return body


def _deflate_window(content: bytes) -> int:
    # Some servers omit the two bytes of the zlib header.
    has_head = len(content) > 1 and content[0] & 0x0F == zlib.DEFLATED and int.from_bytes(content[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if has_head else -zlib.MAX_WBITS


def _gzip_window(content: bytes) -> int:
    return zlib.MAX_WBITS | 16


_WINDOWS: dict[str, Callable[[bytes], int]] = {"gzip": _gzip_window, "x-gzip": _gzip_window, "deflate": _deflate_window}
