"""HTTP as httpx speaks it, carried by aiohttp's session: httpx's own pool slows down with every request in flight."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from yarl import URL

from lance_ns_async.transports.http.reuse import Trust
from lance_ns_async.transports.http.unpacking import TooLongError, UnpackError, unpack

ProxyOf = Callable[[str], str | None]
"""Gives the proxy for an origin such as `https://host:443`; None for none."""

WITHDRAW = "lance_ns_async.withdraw"
"""The extension of an answer that has no connection used again which is open now, because the answer was wrong."""

_WANTS_CREDENTIALS = 407
"""The status by which a proxy asks who one is."""


class ResponseTooLargeError(httpx.TransportError):
    """The answer is longer than the limit it is read with."""


class UntrustedError(httpx.ConnectError):
    """The server shows a certificate that does not prove who it is."""


class WireClosedError(httpx.TransportError):
    """The wire was closed before this request, or while it was to be sent again."""


class EncodedRequest(httpx.Request):
    """A request to a URL that is already encoded, and that nobody parses unless somebody asks for `url`.

    Parsing and re-encoding URLs would be a tenth of the work of a whole call.
    """

    def __init__(self, method: str, text: str, headers: httpx.Headers, content: bytes | None) -> None:
        self.method = method
        self.text = text
        self.headers = headers
        self.extensions = {}
        self.stream = httpx.ByteStream(content or b"")
        self._content = content or b""

    @cached_property
    def url(self) -> httpx.URL:  # type: ignore[override]
        """The URL as httpx parses it."""
        return httpx.URL(self.text)


class WholeResponse(httpx.Response):
    """An answer whose body is here already, which httpx itself takes a while to find out."""

    def __init__(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, extensions: dict[str, Any]
    ) -> None:
        super().__init__(status, headers=headers, stream=httpx.ByteStream(body), extensions=extensions)
        self._content = body
        self.is_closed = self.is_stream_consumed = True


class AiohttpWire(httpx.AsyncBaseTransport):
    """Sends each request once over a pooled connection and reads the whole answer, up to a limit.

    Opens nothing before the first request, and belongs to the event loop of that request. Follows no
    redirect, keeps no cookie, repeats nothing, and sends the URL exactly as it was written.
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
        """Takes times in seconds; an idle connection is used again for `keep_alive`."""
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
        """The whole answer; raises httpx.ConnectError where the request certainly was not sent.

        httpx.ProxyError where a proxy wants credentials, which is as good.
        """
        session = self._session or self._open()
        text = request.text if isinstance(request, EncodedRequest) else str(request.url)
        try:
            async with session.request(
                request.method,
                # Encoded: otherwise yarl turns %2E into a dot and /%2E%2E/x into /x.
                URL(text, encoded=True),
                proxy=self._proxy("/".join(text.split("/", 3)[:3])),
                headers=request.headers.multi_items(),
                data=request.content or None,
                allow_redirects=False,
            ) as answer:
                body = await self._read(answer)
                if "Content-Encoding" in answer.headers:
                    body = await self._unpacked(body, ", ".join(answer.headers.getall("Content-Encoding")))
                headers = [pair for pair in answer.raw_headers if pair[0].lower() != b"content-encoding"]
                return WholeResponse(answer.status, headers, body, self._extensions)
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
            raise httpx.ReadError(f"the connection was lost: {_told(e)}") from e

    async def aclose(self) -> None:
        """Closes all connections for good; may be called twice."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise WireClosedError("the namespace was closed while it was asked; connect anew")
        # The caller's slots bound the connections; a second limit here would only queue unseen.
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True, keepalive_timeout=self._keep_alive)
        self._trust.watch(connector)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=self._timeout,
            # aiohttp would say what it takes a body that is not there to be.
            skip_auto_headers=("Content-Type",),
        )
        # aiohttp would send a DELETE again on its own when a kept connection turns out dead.
        self._session._retry_connection = False
        return self._session

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        # An answer to HEAD tells the length of what it leaves out.
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
        raise self._too_large()

    async def _unpacked(self, packed: bytes, encoding: str) -> bytes:
        """Returns what was compressed although nobody asked for it: a little can become a lot."""
        try:
            return await unpack(packed, encoding, self._max_bytes)
        except UnpackError as e:
            raise httpx.DecodingError(str(e)) from e
        except TooLongError:
            raise self._too_large() from None

    def _too_large(self) -> ResponseTooLargeError:
        return ResponseTooLargeError(f"the answer is longer than {self._max_bytes} bytes (max_response_bytes)")


def environment_proxy(url: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for `url`; None where none does."""
    parts = urlsplit(url)
    if parts.hostname is None or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    return found if found is None or "://" in found else f"http://{found}"


def _direct(origin: str) -> None:
    """No proxy, wherever to."""


def _told(e: Exception) -> str:
    # Of an answer that broke off in its head, aiohttp says what it has of it.
    told = " ".join(str(e).split())
    return told if told and not told.startswith("<") else type(e).__name__


def _connect_message(e: aiohttp.ClientError) -> str:
    to_proxy = " to the proxy" if isinstance(e, aiohttp.ClientProxyConnectionError) else ""
    return f"cannot connect{to_proxy}: {e.__cause__ or e}"
