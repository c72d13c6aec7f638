"""aiohttp's connections, each used again only while nothing is on it that nobody asked for.

HTTP/1.1 numbers neither requests nor answers: an answer that comes unasked on an idle connection would be taken for
the answer to the next request.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from lance_ns_async.transports.unread import unread

_INTERIM = 16
"""How many interim answers, such as 103 Early Hints, may come before an answer."""


class UnaskedError(aiohttp.ClientConnectionError):
    """More came than was asked for, so nobody knows what answers what."""


class Trust:
    """Which connections of a session may be used again: those opened since an answer was last found to be wrong."""

    def __init__(self) -> None:
        self.era = 0

    def withdraw(self) -> None:
        """Has no connection that is open now used for another request; may be called from any thread."""
        self.era += 1

    def watch(self, connector: aiohttp.BaseConnector | None) -> None:
        """Has a connector open connections that are checked before they are used again; may be called twice."""
        if connector is None:
            return
        # aiohttp has no other way to say which protocol its connections follow.
        connector._factory = partial(CheckedHandler, self, connector._loop)  # type: ignore[assignment]


class CheckedHandler(ResponseHandler):
    """One connection, closed as soon as anything comes on it that is no part of the answer to its request."""

    def __init__(self, trust: Trust, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._trust = trust
        self._era = trust.era
        self._asked = False
        self._answer: Any = None
        """The body of the answer, whose end is the end of the exchange; None before its head is here."""
        self._interim = 0
        self._is_encrypted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._unread = unread(transport)
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None

    def set_response_params(self, **how: Any) -> None:
        """Begins an exchange."""
        first = not self._asked
        self._asked, self._answer, self._interim = True, None, 0
        # TLS has words of its own for the beginning. To open a tunnel, the request is written before this.
        if first and not self._is_encrypted and how.get("timer") is not None and self._unread():
            # What a server says before it was asked answers nothing. Writing to what is closed then fails.
            self.abort()
            return
        super().set_response_params(**how)

    def is_connected(self) -> bool:
        """Whether the connection is open and, where it is idle, good for another request."""
        if not super().is_connected():
            return False
        return not self._is_idle() or self._is_clean()

    def data_received(self, data: bytes) -> None:
        # aiohttp calls this without data, too, to have its parser go on.
        if data and self._is_idle():
            self.abort()
            return
        super().data_received(data)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Takes a head that was read, and the body that belongs to it."""
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
        return not self._asked or (self._answer is not None and self._answer.is_eof())

    def _is_clean(self) -> bool:
        if self._era != self._trust.era or self._buffer or self._tail or self._unread():
            return False
        # A head that only began is known to the parser alone; the next exchange has one of its own.
        return self._parser is None or self._parser.feed_eof() is None

    def _refuse(self, why: str) -> None:
        self._buffer.clear()
        self.set_exception(UnaskedError(why))
        if self.transport is not None:
            self.transport.abort()
