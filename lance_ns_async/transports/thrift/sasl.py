"""SASL login to a Thrift server, in the protocol of Java's TSaslServerTransport."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from importlib import import_module  # noqa: TID251 - of an optional package without types
from typing import TYPE_CHECKING, Any, Protocol

import anyio.to_thread
from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import Failure
from lance_ns_async.masked import MaskedBytes
from lance_ns_async.transports.responses import redact
from lance_ns_async.transports.thrift.binary import on_one_line
from lance_ns_async.transports.thrift.decoder import MalformedError

if TYPE_CHECKING:
    from lance_ns_async.transports.thrift.connection import Connection

_START, _OK, _BAD, _ERROR, _COMPLETE = 1, 2, 3, 4, 5
_MAX_MESSAGE_BYTES = 1 << 20
_NO_LAYER = 1


class Mechanism(Protocol):
    """A SASL mechanism on the client's side."""

    name: str
    complete: bool
    """Whether all responses are sent; a mechanism that verifies the server has then done so."""
    secrets: Sequence[str]
    """Parts of the responses that are redacted in errors."""

    async def respond(self, challenge: bytes) -> bytes:
        """Returns the response to the server's challenge, which is empty at the start."""
        ...


class Plain:
    """User and password, which are readable on the network unless TLS is used."""

    name = "PLAIN"
    complete = True

    def __init__(self, user: str, password: str) -> None:
        self._response = f"\0{user}\0{password}".encode()
        self.secrets: Sequence[str] = (password,)

    async def respond(self, challenge: bytes) -> bytes:
        """Returns user and password, whatever the challenge."""
        return self._response


class Kerberos:
    """A Kerberos ticket for the service at a host, from the credentials cache or keytab of this process."""

    name = "GSSAPI"
    secrets: Sequence[str] = ()

    def __init__(self, service: str, host: str) -> None:
        self._gssapi = _gssapi()
        self._target = f"{service}@{host}"
        self._context: Any = None
        self.complete: bool = False

    async def respond(self, challenge: bytes) -> bytes:
        """Returns the next token; after the last one, the choice of neither signatures nor encryption."""
        try:
            # This may call the ticket server, which blocks.
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
            message = "the server requires calls to be signed or encrypted by SASL, which is not supported; use TLS"
            raise Failure("unauthenticated", message=message, delivered=False)
        self.complete = True
        response: bytes = self._context.wrap(struct.pack(">I", _NO_LAYER << 24), False).message
        return response


async def negotiate(connection: Connection, mechanism: Mechanism) -> None:
    """Logs in on a new connection; all later messages on it are framed."""
    request = MaskedBytes(_message(_START, mechanism.name.encode()) + _message(_OK, await mechanism.respond(b"")))
    while True:
        answer = _Message()
        await connection.exchange(request, answer)
        if answer.status == _COMPLETE and mechanism.complete:
            break
        if answer.status != _OK:
            reply = on_one_line(redact(answer.payload.decode("utf-8", "replace"), mechanism.secrets))
            message = reply or f"the server ends the login, status {answer.status}"
            raise Failure("unauthenticated", message=f"SASL {mechanism.name}: {message}", delivered=False)
        request = MaskedBytes(_message(_OK, await mechanism.respond(answer.payload)))
    connection.is_framed = True


class _Message:
    """A message of the server: its status and its payload."""

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
            raise MalformedError(f"not a SASL message: {self._data[:40]!r}; does the server use SASL?")
        if len(self._data) < 5:
            return False
        length = int.from_bytes(self._data[1:5], "big")
        if length > _MAX_MESSAGE_BYTES or len(self._data) > 5 + length:
            raise MalformedError(f"not a SASL message: {self._data[:40]!r}")
        return len(self._data) == 5 + length


def _message(status: int, payload: bytes) -> bytes:
    return struct.pack(">BI", status, len(payload)) + payload


def _gssapi() -> Any:
    try:
        return import_module("gssapi")
    except ImportError as e:
        # The import also fails if the package is installed but the system's Kerberos library is not.
        raise InvalidInputError(f"auth kerberos requires: pip install 'lance-ns-async[kerberos]' ({e})") from e
