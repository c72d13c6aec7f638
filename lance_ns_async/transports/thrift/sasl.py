"""Logging in to a Thrift server with SASL, as Java's TSaslServerTransport wants it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import anyio.to_thread
from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import Failure
from lance_ns_async.transports.http.redact import unsaid
from lance_ns_async.transports.thrift.binary import on_one_line
from lance_ns_async.transports.thrift.decoder import MalformedError

if TYPE_CHECKING:
    from lance_ns_async.transports.thrift.connection import Connection

_START, _OK, _BAD, _ERROR, _COMPLETE = 1, 2, 3, 4, 5
_LONGEST = 1 << 20
_NO_LAYER = 1


class Mechanism(Protocol):
    """One way of logging in."""

    name: str
    complete: bool
    """Whether it has said all, and so knows the server for what it wants it to be."""
    secrets: Sequence[str]
    """What it says that no error is to tell."""

    async def respond(self, challenge: bytes) -> bytes:
        """What to say to the server's challenge, which is empty at the beginning."""
        ...


class Plain:
    """A user and a password, which only TLS keeps from being read on the way."""

    name = "PLAIN"
    complete = True

    def __init__(self, user: str, password: str) -> None:
        self._response = f"\0{user}\0{password}".encode()
        self.secrets: Sequence[str] = (password,)

    async def respond(self, challenge: bytes) -> bytes:
        """The same, whatever the server says."""
        return self._response


class Kerberos:
    """A ticket for the service at a host, out of the credentials cache or keytab of this process."""

    name = "GSSAPI"
    secrets: Sequence[str] = ()

    def __init__(self, service: str, host: str) -> None:
        self._gssapi = _gssapi()
        self._target = f"{service}@{host}"
        self._context: Any = None
        self.complete = False

    async def respond(self, challenge: bytes) -> bytes:
        """The next token; after the last one, that we want neither signatures nor encryption of what follows."""
        try:
            # May have to ask the ticket server.
            return await anyio.to_thread.run_sync(self._next, challenge, abandon_on_cancel=True)
        except self._gssapi.exceptions.GSSError as e:
            message = f"Kerberos, for {self._target}: {on_one_line(str(e))}; is there a ticket (kinit)?"
            raise Failure("unauthenticated", message=message, delivered=False) from e

    def _next(self, challenge: bytes) -> bytes:
        if self._context is None:
            name = self._gssapi.Name(self._target, self._gssapi.NameType.hostbased_service)
            self._context = self._gssapi.SecurityContext(name=name, usage="initiate")
        if not self._context.complete:
            token: bytes | None = self._context.step(challenge or None)
            return token or b""
        layers = self._context.unwrap(challenge).message
        if not layers or not layers[0] & _NO_LAYER:
            message = "the server wants calls to be signed or encrypted by SASL, which is not supported; use TLS"
            raise Failure("unauthenticated", message=message, delivered=False)
        self.complete = True
        wrapped: bytes = self._context.wrap(struct.pack(">I", _NO_LAYER << 24), False).message
        return wrapped


async def negotiate(connection: Connection, mechanism: Mechanism) -> None:
    """Logs in on a new connection; all that follows on it goes in frames."""
    request = _message(_START, mechanism.name.encode()) + _message(_OK, await mechanism.respond(b""))
    while True:
        answer = _Answer()
        await connection.exchange(request, answer)
        if answer.status == _COMPLETE and mechanism.complete:
            break
        if answer.status != _OK:
            said = on_one_line(unsaid(answer.payload.decode("utf-8", "replace"), mechanism.secrets))
            told = said or f"the server ends the login, status {answer.status}"
            raise Failure("unauthenticated", message=f"SASL {mechanism.name}: {told}", delivered=False)
        request = _message(_OK, await mechanism.respond(answer.payload))
    connection.framed = True


class _Answer:
    """A message of the server: its status and what it says."""

    def __init__(self) -> None:
        self._data = b""

    @property
    def status(self) -> int:
        return self._data[0]

    @property
    def payload(self) -> bytes:
        return self._data[5:]

    def feed(self, chunk: bytes) -> bool:
        self._data += chunk
        if not _OK <= self.status <= _COMPLETE:
            raise MalformedError(f"no SASL message: {self._data[:40]!r}; is the server one without SASL?")
        if len(self._data) < 5:
            return False
        length = int.from_bytes(self._data[1:5], "big")
        if length > _LONGEST or len(self._data) > 5 + length:
            raise MalformedError(f"no SASL message: {self._data[:40]!r}")
        return len(self._data) == 5 + length


def _message(status: int, payload: bytes) -> bytes:
    return struct.pack(">BI", status, len(payload)) + payload


def _gssapi() -> Any:
    try:
        return import_module("gssapi")
    except ImportError as e:
        # Also where the package is there and the system's Kerberos library is not.
        raise InvalidInputError(f"auth kerberos needs: pip install 'lance-ns-async[kerberos]' ({e})") from e
