"""Servers of plain sockets on the test's own event loop, which control each byte."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

End = Literal["keep", "close", "reset", "hang"]
"""The end of a response: the connection continues, is closed or reset, or nothing more is sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The bytes of a response, and what follows it."""

    data: bytes = b""
    then: End = "keep"


def http(
    status: int = 200, body: bytes | str = b"{}", headers: Mapping[str, str] | None = None, *, then: End = "keep"
) -> Reply:
    """Returns an HTTP response; Content-Length is correct unless the headers contain it, or Transfer-Encoding."""
    raw = body.encode() if isinstance(body, str) else body
    fields = dict(headers or {})
    if "Content-Length" not in fields and "Transfer-Encoding" not in fields and then != "close":
        fields["Content-Length"] = str(len(raw))
    lines = [f"HTTP/1.1 {status} Reason {status}", *(f"{name}: {value}" for name, value in fields.items())]
    return Reply("\r\n".join([*lines, "", ""]).encode("latin-1") + raw, then)


class Server:
    """A TCP server on 127.0.0.1 and a free port; open connections are reset at the end of the context."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._met, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        raise NotImplementedError

    async def _met(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


class Script(Server):
    """Sends the responses of a test in turn, and then `{}`."""

    def __init__(self, *answers: Reply, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.requested = asyncio.Event()  # Set when the first request has arrived
        self.ended = asyncio.Event()  # Set when a client has closed a connection whose response is incomplete

    @property
    def lines(self) -> list[str]:
        return [request.split(b"\r\n", 1)[0].decode("latin-1") for request in self.requests]

    def header(self, name: str, request: int = -1) -> list[str]:
        head = self.requests[request].split(b"\r\n\r\n", 1)[0].decode("latin-1")
        pairs = [line.split(": ", 1) for line in head.split("\r\n")[1:]]
        return [value for key, value in pairs if key.lower() == name.lower()]

    def body(self, request: int = -1) -> bytes:
        return self.requests[request].split(b"\r\n\r\n", 1)[1]

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        while not reader.at_eof():
            self.requests.append(await read_request(reader))
            self.requested.set()
            answer = self.answers.pop(0) if self.answers else http()
            writer.write(answer.data)
            await writer.drain()
            match answer.then:
                case "close":
                    writer.close()
                    await writer.wait_closed()
                    return
                case "reset":
                    reset(writer)
                    return
                case "hang":
                    await reader.read()
                    self.ended.set()


class Forwarder(Server):
    """A forward proxy: it forwards requests for whole URLs, and CONNECT opens a tunnel."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[bytes] = []

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        request = await read_request(reader)
        self.requests.append(request)
        method, target, _ = request.split(b" ", 2)
        tunnelled = method == b"CONNECT"
        host, _, port = target.decode().removeprefix("http://").split("/", 1)[0].rpartition(":")
        onward_reader, onward = await asyncio.open_connection(host, int(port))
        if tunnelled:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            onward.write(request)
        async with asyncio.TaskGroup() as group:
            group.create_task(_pump(reader, onward))
            group.create_task(_pump(onward_reader, writer))


async def read_request(reader: StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":", 1)[1])
    return head + await reader.readexactly(length)


def reset(writer: StreamWriter) -> None:
    """Ends the connection with RST, which clients see as a reset and not as an end."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
