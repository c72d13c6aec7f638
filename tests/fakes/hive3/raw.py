"""Calls to a metastore, real or fake, without conversions by a client."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ..thrift_sasl import COMPLETE, OK, START, sasl_message
from ..thrift_wire import CALL, EXCEPTION, STRUCT, Message, Struct, Typed, decoded, frame, receive_message
from . import LANCE
from .errors import METHODS

_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: `ok`, the name of an exception, or `cut`."""

    kind: str
    value: Any = None
    """The result, or the message of the exception."""


class RawHive:
    """Makes calls over one connection, and over a new one after it was cut."""

    def __init__(
        self,
        uri: str,
        *,
        framed: bool = False,
        plain_sasl: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = uri.removeprefix("thrift://").rpartition(":")
        self._address = (host, int(port))
        self._framed = framed or plain_sasl is not None
        self._plain_sasl = plain_sasl
        self._tls = tls
        self._sequence = 0
        self._wire: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def ask(self, method: str, *arguments: Any) -> Outcome:
        """Calls a method; arguments are numbered from 1, and None omits one."""
        try:
            reply = self.exchange(method, *arguments)
        except (EOFError, ConnectionError):
            self.close()
            return Outcome("cut")
        assert (reply.name, reply.sequence) == (method, self._sequence), reply
        if reply.kind == EXCEPTION:
            return Outcome("TApplicationException", (reply.body[2], reply.body[1]))
        for field, value in reply.body.items():
            if field:
                return Outcome(METHODS[method][field - 1], value.get(1))
            return Outcome("ok", value)
        return Outcome("ok")

    def do(self, method: str, *arguments: Any) -> Any:
        """Calls a method and returns its result; fails if there is none."""
        outcome = self.ask(method, *arguments)
        assert outcome.kind == "ok", outcome
        return outcome.value

    def exchange(self, method: str, *arguments: Any) -> Message:
        """Returns the reply without interpretation."""
        self.send(method, *arguments)
        return self.receive()

    def send(self, method: str, *arguments: Any) -> None:
        """Sends a call without waiting for the reply."""
        self._sequence += 1
        numbered = Struct(dict(enumerate(arguments, 1)))
        data = Message(CALL, method, self._sequence, numbered).encoded()
        self.connected.sendall(frame(data) if self._framed else data)

    def receive(self) -> Message:
        """Returns the next reply."""
        if not self._framed:
            return receive_message(self.connected)
        (size,) = struct.unpack(">I", self.read(4))
        return decoded(self.read(size))

    def read(self, size: int) -> bytes:
        """Reads a number of bytes; raises EOFError if the connection ends before."""
        data = b""
        while len(data) < size:
            more = self.connected.recv(size - len(data))
            if not more:
                raise EOFError("the connection ended")
            data += more
        return data

    @property
    def connected(self) -> socket.socket:
        """Returns the connection, which is opened when it is needed."""
        if self._wire is None:
            wire = socket.create_connection(self._address, timeout=_SECONDS)
            self._wire = self._tls.wrap_socket(wire, server_hostname=self._address[0]) if self._tls else wire
            if self._plain_sasl is not None:
                self._log_in(*self._plain_sasl)
        return self._wire

    def _log_in(self, user: str, password: str) -> None:
        assert self._wire is not None
        self._wire.sendall(sasl_message(START, b"PLAIN") + sasl_message(OK, f"\0{user}\0{password}".encode()))
        status, size = struct.unpack(">BI", self.read(5))
        message = self.read(size)
        if status != COMPLETE:
            raise PermissionError(message.decode())


def catalog(name: str | None, location: str | None = None, description: str | None = None) -> Struct:
    """Returns the request that creates a catalog."""
    return Struct({1: Struct({1: name, 2: description, 3: location})})


def database(
    catalog: str | None,
    name: str | None,
    *,
    description: str | None = None,
    location: str | None = None,
    parameters: Mapping[str, str] | None = None,
    owner: tuple[str | None, int | None] = (None, None),
) -> Struct:
    """Returns a database as it is sent."""
    fields = {2: description, 3: location, 4: dict(parameters) if parameters is not None else None}
    return Struct({1: name, **fields, 6: owner[0], 7: owner[1], 8: catalog})


def table(
    catalog: str | None,
    database: str | None,
    name: str | None,
    *,
    location: str | None = None,
    parameters: Mapping[str, str] = LANCE,
    type: str | None = "EXTERNAL_TABLE",
    columns: Sequence[tuple[str, str]] | None = (),
    serde: Struct | None = None,
    storage: Struct | None = None,
) -> Struct:
    """Returns a table as it is sent; `storage` replaces the other arguments about its storage."""
    described = None
    if columns is not None:
        described = Typed(STRUCT, [Struct({1: column, 2: kind}) for column, kind in columns])
    usual = Struct({1: described, 2: location, 7: Struct() if serde is None else serde})
    return Struct(
        {
            1: name,
            2: database,
            7: usual if storage is None else storage,
            8: Typed(STRUCT, []),
            9: dict(parameters),
            12: type,
            17: catalog,
        }
    )


def named(catalog: str | None, database: str | None, name: str | Sequence[str] | None) -> Struct:
    """Returns the request for a table, or for tables."""
    return Struct({1: database, 2: name, 4: catalog})
