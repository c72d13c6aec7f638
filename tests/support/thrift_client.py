"""A client of Thrift connections for tests, and a server that sends unexpected bytes."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import lance_namespace.errors as err

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import COMMON_ERRORS, ErrorTable
from lance_ns_async.model import NamespaceId
from lance_ns_async.transports.thrift.binary import struct_field, text
from lance_ns_async.transports.thrift.connection import Address, ThriftRoute
from lance_ns_async.transports.thrift.sasl import Mechanism
from lance_ns_async.transports.thrift.transport import Method, ThriftTransport, open_thrift
from tests.fakes.sockets import Server
from tests.fakes.thrift_wire import REPLY, Message, Struct, read_message

ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    "mismatch": err.ServiceUnavailableError,
    "unauthenticated": err.UnauthenticatedError,
    "UNKNOWN_METHOD": err.UnsupportedOperationError,
    "NoSuchObjectException": err.NamespaceNotFoundError,
}
QUICK = Policy(max_retries=3, backoff_initial=0.001, backoff_max=0.002)
DATABASE = Method("get_database", ("NoSuchObjectException", "MetaException"), gives={1: None})
CREATE = Method("create_database", ("AlreadyExistsException",), void=True)
NAMES = [f"d{i}" for i in range(20)]


class Talkative(Server):
    """Answers a call and, on request, sends further bytes; or only sends a greeting."""

    def __init__(self, greeting: bytes = b"") -> None:
        super().__init__()
        self.more = asyncio.Event()  # Set to send further bytes
        self.left = asyncio.Event()  # Set when a client has closed its connection
        self._greeting = greeting

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._greeting:
            await reader.read(1)
            writer.write(self._greeting)
        else:
            request = await read_message(reader)
            result = Struct({0: Struct({1: request.body[1]})})
            writer.write(Message(REPLY, request.name, request.sequence, result).encoded())
            await writer.drain()
            await self.more.wait()
            self.more.clear()
            writer.write(Message(REPLY, request.name, request.sequence + 1, result).encoded())
        await reader.read()
        self.left.set()


class Client:
    """Requests databases by name, so that each reply can be matched to its request."""

    def __init__(self, thrift: ThriftTransport, caller: Caller) -> None:
        self.thrift = thrift
        self.caller = caller

    async def ask(self, name: str) -> str:
        return str(await self.call(DATABASE, text(1, name), decode=lambda body: body[1]))

    async def make(self, name: str) -> None:
        await self.call(CREATE, struct_field(1, text(1, name)), safe=False)

    async def call(
        self, method: Method, arguments: bytes, *, decode: Callable[[Any], Any] = lambda body: body, safe: bool = True
    ) -> Any:
        return await self.thrift.call(
            method, arguments, subject=NamespaceId(["n"]), operation=method.name, decode=decode, safe=safe
        )


@asynccontextmanager
async def client(
    *ports: int,
    host: str = "127.0.0.1",
    size: int = 3,
    policy: Policy = QUICK,
    framed: bool = False,
    tls: ssl.SSLContext | None = None,
    max_response_bytes: int = 1 << 20,
    connect_timeout: float = 5.0,
    login: Mechanism | None = None,
    first: tuple[Method, bytes] | None = None,
) -> AsyncIterator[Client]:
    route = ThriftRoute([Address(host, port) for port in ports], connect_timeout, max_response_bytes, framed, tls)
    caller = Caller(policy, ERRORS)
    thrift = open_thrift(
        route,
        caller,
        size=size,
        read_error=lambda name, message: (),
        login=(lambda address: login) if login else None,
        first=first,
    )
    try:
        yield Client(thrift, caller)
    finally:
        await thrift.aclose()
