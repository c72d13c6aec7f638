"""Checks of aiohttp's connections before they are reused.

HTTP/1.1 numbers neither requests nor responses. An unsolicited response on an idle connection would therefore be read
as the response to the next request.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from lance_ns_async.transports.unread_bytes import read_rest, unread

_INTERIM = 16  # Maximum number of interim responses, such as 103 Early Hints, before a response.


_EARLY_RESPONSE = 2**16  # Maximum number of bytes of a response that is read after the connection has failed.


class UnaskedError(aiohttp.ClientConnectionError):
    """The server sent more responses than requested, so responses cannot be assigned to requests."""


class Trust:
    """Decides which connections of a session may be reused: those opened after the last mismatched response."""

    def __init__(self) -> None:
        self.era: int = 0

    def withdraw(self) -> None:
        """Excludes all connections that are open now from further requests; may be called from any thread."""
        self.era += 1

    def watch(self, connector: aiohttp.BaseConnector | None) -> None:
        """Makes a connector open connections that are checked before they are reused; may be called twice."""
        if connector is None:
            return
        # aiohttp has no other way to set the protocol class of its connections.
        factory = partial(CheckedHandler, self, asyncio.get_running_loop())
        connector._factory = factory  # type: ignore[assignment]  # noqa: SLF001


class CheckedHandler(ResponseHandler):
    """One connection, which closes as soon as it receives data that belongs to no request."""

    def __init__(self, trust: Trust, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._trust = trust
        self._era = trust.era
        self._is_requested = False
        self._answer: Any = None
        """The body of the response, whose end is the end of the exchange; None until the headers are received."""
        self._interim = 0
        self._is_encrypted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._unread = unread(transport)
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None

    def connection_lost(self, exc: BaseException | None) -> None:
        # A server that refuses a long body responds and closes. A write that fails then must not hide the response.
        if isinstance(exc, OSError) and self._is_requested and self._answer is None and not self._is_encrypted:
            transport = self.transport
            if transport is not None and (data := read_rest(transport, _EARLY_RESPONSE)):
                super().data_received(data)
        super().connection_lost(exc)

    def set_response_params(self, **how: Any) -> None:
        """Starts an exchange."""
        first = not self._is_requested
        self._is_requested, self._answer, self._interim = True, None, 0
        # TLS is excluded, because its handshake may send more data; tunnels, because their request is already written.
        if first and not self._is_encrypted and how.get("timer") is not None and self._unread():
            # Data that arrives before the first request cannot be its response. Writing to the closed connection fails.
            self.abort()
            return
        super().set_response_params(**how)

    def is_connected(self) -> bool:
        """Returns whether the connection is open and, if it is idle, fit for another request."""
        if not super().is_connected():
            return False
        if not self._is_idle():
            return True
        if self._era != self._trust.era or self._buffer or self._tail or self._unread():
            return False
        # Only the parser knows about incomplete headers. The next exchange gets a new parser.
        return self._parser is None or self._parser.feed_eof() is None

    def data_received(self, data: bytes) -> None:
        # aiohttp also calls this without data, to resume its parser.
        if data and self._is_idle():
            self.abort()
            return
        super().data_received(data)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Handles the parsed headers of a response and its body."""
        if self._exception is not None:
            return
        status: int = data[0].code
        if 100 <= status < 200 and status != 101:
            self._interim += 1
            if self._interim > _INTERIM:
                self._refuse(f"more than {_INTERIM} interim answers to one request")
                return
        elif self._answer is not None:
            self._refuse("two answers to one request")
            return
        else:
            self._answer = data[1]
        super().feed_data(data, size)

    def _is_idle(self) -> bool:
        return not self._is_requested or (self._answer is not None and self._answer.is_eof())

    def _refuse(self, why: str) -> None:
        self._buffer.clear()
        self.set_exception(UnaskedError(why))
        if self.transport is not None:
            self.transport.abort()
