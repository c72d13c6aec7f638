"""A catalog server on plain sockets that responds with a fault."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.fakes.clock import pass_time
from tests.fakes.sockets import Server, reset
from tests.faults.backends import Catalog

End = Literal["keep", "close", "reset", "hang", "drip"]
"""The end of a response: the connection stays open, is closed or reset, sends nothing more, or one byte per second."""

Respond = Callable[[bytes], bytes]
"""Returns the faulty response for the correct one."""

_CLOSE_TIMEOUT = 30.0
"""Seconds until all connections of a closed client must be closed."""

PATIENCE = 5
"""Maximum seconds of an attempt."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a server does instead of sending the correct response."""

    respond: Respond
    then: End = "keep"


class FaultyServer(Server):
    """A catalog that responds to some requests with a fault; its exit asserts that all connections were closed."""

    def __init__(
        self,
        catalog: Catalog,
        action: Action | None = None,
        *,
        at: bytes = b"",
        only: Callable[[bytes], bool] = bool,
        acts: bool = False,
        times: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Creates the server.

        Args:
            catalog: Returns the correct responses.
            action: The fault; None for none.
            at: Only requests that contain these bytes get the fault.
            only: Selects the requests that get the fault.
            acts: Whether these requests are executed before.
            times: Number of requests that get the fault; None for all.
            tls: For HTTPS.
        """
        super().__init__(tls)
        self.catalog = catalog
        self.requests: list[bytes] = []
        self._action = action
        self._at = at
        self._only = only
        self._acts = acts
        self._left = times

    @property
    def table_requests(self) -> list[bytes]:
        """The requests about tables."""
        return [request for request in self.requests if not self.catalog.is_aside(request)]

    @property
    def writes(self) -> int:
        """Number of requests for changes."""
        return sum(map(self.catalog.is_write, self.requests))

    async def __aexit__(self, *caught: object) -> None:
        if self._tasks and caught[0] is None:
            _, open = await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT)
            assert not open, f"{len(open)} connections were not closed"
        await super().__aexit__(*caught)

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        while not reader.at_eof():
            request = await self.catalog.read(reader)
            self.requests.append(request)
            action = self._action_for(request)
            if action is None:
                writer.write(self.catalog.answer(request))
                await writer.drain()
                continue
            right = self.catalog.answer(request, acting=self._acts)
            if not await _perform(action, action.respond(right), reader, writer):
                return

    def _action_for(self, request: bytes) -> Action | None:
        if self._action is None or self._left == 0 or self._at not in request or self.catalog.is_aside(request):
            return None
        if not self._only(request):
            return None
        if self._left is not None:
            self._left -= 1
        return self._action


class FixedResponseServer(Server):
    """Sends the same bytes on every connection after its first byte; without bytes, it never responds."""

    def __init__(self, response: bytes = b"") -> None:
        super().__init__()
        self._response = response

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        await reader.read(1)
        writer.write(self._response)
        await writer.drain()
        if not self._response:
            await reader.read()


async def _perform(action: Action, response: bytes, reader: StreamReader, writer: StreamWriter) -> bool:
    """Sends the response; returns whether the connection stays open."""
    if action.then == "drip":
        for at in range(len(response)):
            if reader.at_eof() or writer.is_closing():
                break
            writer.write(response[at : at + 1])
            await pass_time(1)
        return False
    writer.write(response)
    await writer.drain()
    match action.then:
        case "keep":
            return True
        case "close":
            writer.close()
            await writer.wait_closed()
        case "reset":
            reset(writer)
        case "hang":
            await pass_time(PATIENCE)
            await reader.read()
    return False
