"""A connection pool of limited size, which opens connections on demand and never reuses one after an error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from lance_namespace.errors import InvalidInputError

from lance_ns_async.transports.thrift.connection import Connection, Connector, DisconnectedError

T = TypeVar("T")

KEEP_ALIVE = 60.0
"""Seconds for which an idle connection may be reused; balancers and firewalls drop connections that idle longer."""


class StaleError(DisconnectedError):
    """A connection was lost that was reused; the usual cause is a server that had closed it meanwhile."""


class Pool:
    """Lends connections, the last used one first; bound to the event loop of the first loan."""

    def __init__(self, connector: Connector, size: int, *, keep_alive: float = KEEP_ALIVE) -> None:
        self._connector = connector
        self._keep_alive = keep_alive
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._is_closed = False

    async def lend(self, work: Callable[[Connection], Awaitable[T]], *, fresh: bool = False) -> T:
        """Returns the result of `work` on a connection; any exception closes the connection.

        Args:
            work: Makes one exchange.
            fresh: Whether the connection must be a new one.

        Raises:
            StaleError: A reused connection was lost.
            DisconnectedError: A new connection was lost.
            Failure: No connection can be opened.
            InvalidInputError: The pool is closed.
        """
        async with self._slots:
            if fresh and self._idle:
                # The new connection takes the place of the one that is idle for the longest time.
                self._idle.pop(0).abort()
            elif (idle := self._take_idle()) is not None:
                try:
                    return await self._run_on(idle, work)
                except DisconnectedError as e:
                    raise StaleError(*e.args) from e
            return await self._run_on(await self._open_connection(), work)

    async def aclose(self) -> None:
        """Closes the pool and all its connections; may be called twice."""
        self._is_closed = True
        self._idle.clear()
        connections = list(self._open)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.wait_closed()

    async def _run_on(self, connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            result = await work(connection)
        except BaseException as e:  # after a cancellation, too: an incomplete exchange must not reach another call
            connection.abort()
            if self._connector.pass_over(connection.address) or isinstance(e, DisconnectedError):
                # The usual cause is a server that has stopped or hangs, which affects all idle connections.
                self._purge()
            raise
        if self._is_closed:
            connection.abort()
        elif connection.usable:
            connection.used = asyncio.get_running_loop().time()
            self._idle.append(connection)
        return result

    async def _open_connection(self) -> Connection:
        self._check_open()
        connection = await self._connector.open()
        self._open.add(connection)
        connection.when_closed(self._open.discard)
        if self._is_closed:
            connection.abort()
        self._check_open()
        return connection

    def _take_idle(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.clean and now - connection.used < self._keep_alive:
                return connection
            connection.abort()
        return None

    def _purge(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidInputError("the namespace was closed during the call; connect anew")
