"""Listening sockets that accept a limited number of connections from each address."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from time import monotonic
from typing import Any, NoReturn

log: logging.Logger = logging.getLogger(__name__)

_FULL = (errno.EMFILE, errno.ENFILE)  # Errors of `accept` if the process or the system has no free descriptor.

_LOG_PERIOD = 60.0  # Minimum seconds between two log entries about refused connections.


class Listener(socket.socket):
    """A listening socket that closes new connections beyond a limit, also those before or during a TLS handshake.

    Without a free descriptor, asyncio would log many attempts to accept a connection, and the clients would wait.
    """

    def __init__(self, family: int, type: int, proto: int, limit: int) -> None:
        super().__init__(family, type, proto)
        self._limit = limit
        self._open: Counter[str] = Counter()
        # Accepts one connection if there is no other free descriptor.
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        self._next_log = 0.0
        self._refused = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Returns the next connection and its address."""
        try:
            plain, address = super().accept()
        except OSError as e:
            if e.errno not in _FULL or not self._drop():
                raise
            self._refuse("the process has no free descriptor; raise its limit of open files (ulimit -n)")
        origin = _origin(address[0])
        if self._open[origin] >= self._limit:
            plain.close()
            self._refuse(f"{origin} has {self._limit} connections; see max_connections")
        self._open[origin] += 1
        return _Accepted(plain, self._open, origin), address

    def close(self) -> None:
        """Closes the socket and its spare descriptor."""
        super().close()
        self._release()

    def _refuse(self, reason: str) -> NoReturn:
        self._refused += 1
        if (now := monotonic()) >= self._next_log:
            log.warning("gateway: %d connections refused; the last one, because %s", self._refused, reason)
            self._next_log, self._refused = now + _LOG_PERIOD, 0
        raise BlockingIOError

    def _drop(self) -> bool:
        """Closes the next connection by means of the spare descriptor; returns whether there was such a descriptor."""
        if self._spare is None:
            return False
        self._release()
        with suppress(OSError):
            super().accept()[0].close()
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)
        return True

    def _release(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None


class _Accepted(socket.socket):
    """A connection that is counted until it is closed."""

    def __init__(self, plain: socket.socket, counts: Counter[str], origin: str) -> None:
        super().__init__(fileno=plain.detach())
        self._counts: Counter[str] | None = counts
        self._origin = origin

    def close(self) -> None:
        """Closes the connection."""
        super().close()
        if self._counts is not None:
            self._counts[self._origin] -= 1
            if not self._counts[self._origin]:
                del self._counts[self._origin]
            self._counts = None


async def listeners(host: str, port: int, limit: int) -> list[Listener]:
    """Returns a bound socket for each address of a host.

    Args:
        host: The address or name to listen on.
        port: The port; 0 selects one.
        limit: Maximum number of connections from one address; an IPv6 network of 64 bits counts as one address.
    """
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[Listener] = []
    try:
        for family, type, proto, _, address in dict.fromkeys(infos):
            listener = Listener(family, type, proto, limit)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # The addresses of one name have the same port.
            listener.bind((address[0], port or _port(sockets[0]), *address[2:]))
            listener.setblocking(False)
    except OSError:
        for listener in sockets:
            listener.close()
        raise
    return sockets


def _port(listener: socket.socket) -> int:
    """Returns the port of a socket; 0 if it has none yet."""
    port: int = listener.getsockname()[1]
    return port


def _origin(host: str) -> str:
    """Returns the text by which the connections of one client are counted."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None and not address.is_loopback:
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return str(address)
