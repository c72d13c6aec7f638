"""Addresses without a server, or with another server than the expected one."""

from __future__ import annotations

import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from unittest.mock import patch

from lance_namespace.errors import ServiceUnavailableError

from tests.fakes.certificates import LONG_AGO, authority
from tests.fakes.sockets import Server
from tests.faults.catalogs import Catalog
from tests.faults.faults import Expected, Then

Place = Callable[[Catalog], AbstractAsyncContextManager[str]]
"""Provides a URL at which no call can be sent."""


class FixedResponseServer(Server):
    """Sends the same bytes on every connection after its first byte; without bytes, it never responds."""

    def __init__(self, response: bytes = b"", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.received = 0
        """Number of connections on which bytes were received."""
        self._response = response

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.received += bool(await reader.read(1))
        writer.write(self._response)
        await writer.drain()
        if not self._response:
            await reader.read()


@asynccontextmanager
async def _no_server(catalog: Catalog) -> AsyncIterator[str]:
    with socket.socket() as occupied_port:
        occupied_port.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{occupied_port.getsockname()[1]}"


@asynccontextmanager
async def _unknown(catalog: Catalog) -> AsyncIterator[str]:
    # A real name server may take long to respond.
    with patch("socket.getaddrinfo", side_effect=socket.gaierror(socket.EAI_NONAME, "Name or service not known")):
        yield "http://nobody.invalid:80"


@asynccontextmanager
async def _full(catalog: Catalog) -> AsyncIterator[str]:
    """Provides the URL of a server whose queue of connections is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _tls(who: str, host: str, *, is_expired: bool = False) -> Place:
    @asynccontextmanager
    async def place(catalog: Catalog) -> AsyncIterator[str]:
        context = authority(who).server(host, until=LONG_AGO if is_expired else None)
        async with FixedResponseServer(tls=context) as server:
            yield server.url
            assert not server.received

    return place


def _no_tls(response: bytes) -> Place:
    @asynccontextmanager
    async def place(catalog: Catalog) -> AsyncIterator[str]:
        async with FixedResponseServer(response) as server:
            yield f"https://127.0.0.1:{server.port}"

    return place


@dataclass(frozen=True, slots=True)
class Unreachable:
    """An address at which no call can be sent."""

    place: Place
    messages: Mapping[str, str]
    """A part of the error message, by catalog; the empty key is for all others."""
    connect_timeout: str = "4s"
    then: Then = "again"

    def expected(self, impl: str) -> Expected:
        """Returns the error of a call; it was not sent, so it is retried if that may help."""
        return Expected(ServiceUnavailableError, self.messages.get(impl, self.messages[""]), self.then)


_GLUE = "are endpoint and region right, and the server up?"
_CERTIFICATE = {"": "certificate verify failed"}

PLACES: Mapping[str, Unreachable] = {
    "no server at the port": Unreachable(_no_server, {"": "cannot connect", "glue": _GLUE}),
    "unknown host name": Unreachable(_unknown, {"": "cannot connect", "glue": _GLUE}),
    "a server that accepts no connections": Unreachable(_full, {"": "no connection within", "glue": _GLUE}, "50ms"),
    "an unknown certificate authority": Unreachable(_tls("others", "127.0.0.1"), _CERTIFICATE, then="never"),
    "a certificate for another host": Unreachable(_tls("ours", "example.com"), _CERTIFICATE, then="never"),
    "an expired certificate": Unreachable(_tls("ours", "127.0.0.1", is_expired=True), _CERTIFICATE, then="never"),
    "a server without TLS": Unreachable(
        _no_tls(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {"": "cannot connect", "glue": _GLUE}
    ),
    "a server that does not respond to the TLS handshake": Unreachable(
        _no_tls(b""), {"": "no connection within", "glue": _GLUE}, "50ms"
    ),
}
