"""Places where there is no server, or not the one that is meant."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from unittest.mock import patch

from lance_namespace.errors import ServiceUnavailableError

from tests.faults.backends import Catalog
from tests.faults.certificates import LONG_AGO, authority
from tests.faults.server import Misbehaving, Mute
from tests.faults.table import Expected, Then

Place = Callable[[Catalog], AbstractAsyncContextManager[str]]
"""Gives the URL of where there is no such server."""


@asynccontextmanager
async def _nobody(catalog: Catalog) -> AsyncIterator[str]:
    with socket.socket() as occupied_port:
        occupied_port.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{occupied_port.getsockname()[1]}"


@asynccontextmanager
async def _unknown(catalog: Catalog) -> AsyncIterator[str]:
    # A real name server may take its time to know nothing.
    with patch("socket.getaddrinfo", side_effect=socket.gaierror(socket.EAI_NONAME, "Name or service not known")):
        yield "http://nobody.invalid:80"


@asynccontextmanager
async def _full(catalog: Catalog) -> AsyncIterator[str]:
    """A server that accepts nothing more."""
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
        async with Misbehaving(catalog, tls=context) as server:
            yield server.url
            assert not server.requests

    return place


def _no_tls(words: bytes) -> Place:
    @asynccontextmanager
    async def place(catalog: Catalog) -> AsyncIterator[str]:
        async with Mute(words) as server:
            yield f"https://127.0.0.1:{server.port}"

    return place


@dataclass(frozen=True, slots=True)
class Nowhere:
    """A place where calls do not get to."""

    place: Place
    words: Mapping[str, str]
    """Some of what an error says, by catalog; under the empty name for all others."""
    waits: str = "4s"
    """How long for a connection."""
    then: Then = "again"

    def expected(self, impl: str) -> Expected:
        """What a call gets: it was not sent, and so may be sent again where that is of use."""
        return Expected(ServiceUnavailableError, self.words.get(impl, self.words[""]), self.then)


_GLUE = "are endpoint and region right, and the server up?"
_CERTIFICATE = {"": "certificate verify failed"}

PLACES: Mapping[str, Nowhere] = {
    "no server at the port": Nowhere(_nobody, {"": "cannot connect", "glue": _GLUE}),
    "unknown host name": Nowhere(_unknown, {"": "cannot connect", "glue": _GLUE}),
    "a server that accepts no connections": Nowhere(_full, {"": "no connection within", "glue": _GLUE}, "50ms"),
    "an unknown certificate authority": Nowhere(_tls("others", "127.0.0.1"), _CERTIFICATE, then="never"),
    "a certificate for another host": Nowhere(_tls("ours", "example.com"), _CERTIFICATE, then="never"),
    "an expired certificate": Nowhere(_tls("ours", "127.0.0.1", is_expired=True), _CERTIFICATE, then="never"),
    "a server without TLS": Nowhere(
        _no_tls(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {"": "cannot connect", "glue": _GLUE}
    ),
    "a server that does not respond to the TLS handshake": Nowhere(
        _no_tls(b""), {"": "no connection within", "glue": _GLUE}, "50ms"
    ),
}
