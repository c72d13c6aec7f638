"""Settings of the Hive Metastore backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from lance_namespace.errors import InvalidInputError
from pydantic import AfterValidator, Field, SecretStr, model_validator

from lance_ns_async.calls.policy import Policy
from lance_ns_async.settings import LocationSettings, Seconds
from lance_ns_async.storage.locations import Root
from lance_ns_async.transports.http.tls import tls_context
from lance_ns_async.transports.thrift.connection import Address, ThriftRoute
from lance_ns_async.transports.thrift.sasl import Kerberos, Mechanism, Plain

_PORT = 9083


def _addresses(uri: str) -> Sequence[Address]:
    addresses = []
    for part in map(str.strip, uri.split(",")):
        try:
            parts = urlsplit((part if "://" in part else f"thrift://{part}").removesuffix("/"))
            host, port = parts.hostname, _PORT if parts.port is None else parts.port
        except ValueError:
            host = None
        if not host or not port or parts != ("thrift", parts.netloc, "", "", "") or "@" in parts.netloc:
            raise ValueError("not a list of thrift://host:port, joined by commas")
        addresses.append(Address(host, port))
    return addresses


def _uri(uri: str) -> str:
    _addresses(uri)
    return uri


def _ugi(value: str) -> str:
    if not value.partition(":")[0].strip():
        raise ValueError("not a user; write user or user:group1,group2")
    return value


class HiveSettings(LocationSettings):
    """Properties of a Hive Metastore."""

    backend = "hive3"

    uri: Annotated[str, AfterValidator(_uri)] = f"thrift://localhost:{_PORT}"
    """Address of the server, `thrift://host:port` or `host:port`; several, separated by commas, are tried in order."""
    ugi: Annotated[str, AfterValidator(_ugi)] | None = None
    """User and groups of the calls, as `user:group1,group2`, for servers without authentication."""
    root: Root | None = None
    """Directory for new catalogs and tables without a location; None means the working directory."""
    client_pool_size: int = Field(default=3, ge=1)
    """Maximum number of connections, and of calls in flight."""
    connect_timeout: Seconds = Field(default=5.0, gt=0)
    """Limit for each address."""
    read_timeout: Seconds = Field(default=60.0, gt=0)
    """If its database fails, a server retries for 20 seconds before it responds."""
    keep_alive: Seconds = Field(default=60.0, gt=0)
    """How long an idle connection may be reused."""
    framed: bool = False
    """Whether the server uses framed messages, as with `metastore.thrift.framed.transport.enabled`."""
    use_ssl: bool = False
    ca_bundle: str | None = None
    """A PEM file of certificate authorities to trust instead of the system's."""
    client_cert: str | None = None
    """A PEM file with a client certificate, and its key unless `client_key` names it."""
    client_key: str | None = None
    auth: Literal["none", "plain", "kerberos"] = "none"
    """The SASL mechanism of the login."""
    user: str | None = None
    password: SecretStr | None = None
    kerberos_service: str = "hive"
    """The first part of the server's principal, `service/host@REALM`."""
    max_response_bytes: int = Field(default=128 * 1024 * 1024, ge=1024)
    """Maximum size of a response; one response contains the descriptions of up to 100 tables."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if (self.auth == "plain") != (self.user is not None) or (self.user is None) != (self.password is None):
            raise ValueError("auth, user and password: auth=plain requires the other two, and only it allows them")
        if self.auth != "none" and self.ugi is not None:
            raise ValueError("ugi: omit it, because auth identifies the user")
        if self.auth != "none" and self.framed:
            raise ValueError("framed: omit it, because with auth all messages are framed")
        if not self.use_ssl and (self.ca_bundle or self.client_cert or self.client_key):
            raise ValueError("ca_bundle, client_cert, client_key: they require use_ssl=true")
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key: give client_cert with it")
        return self

    def identity(self) -> str:
        """Returns the addresses and the user."""
        user = self.user or (self.ugi or "").partition(":")[0]
        return "|".join(filter(None, (self.uri, user)))

    def limit(self, policy: Policy) -> Policy:
        """Returns the policy with at most as many calls in flight as connections."""
        return replace(policy, max_in_flight=min(policy.max_in_flight, self.client_pool_size))

    def usual_attempt(self) -> float:
        """Returns the time-outs for connecting and reading together."""
        return self.connect_timeout + self.read_timeout

    def route(self) -> ThriftRoute:
        """Returns the route to the server; raises InvalidInputError if a certificate cannot be read."""
        try:
            tls = tls_context(self.ca_bundle, self.client_cert, self.client_key) if self.use_ssl else None
        except OSError as e:
            files = ", ".join(filter(None, (self.ca_bundle, self.client_cert, self.client_key)))
            raise InvalidInputError(f"{self.backend} properties: cannot load {files}: {e}") from e
        return ThriftRoute(
            _addresses(self.uri),
            connect_timeout=self.connect_timeout,
            max_response_bytes=self.max_response_bytes,
            is_framed=self.framed,
            tls=tls,
        )

    def login(self) -> Callable[[Address], Mechanism] | None:
        """Returns the login for an address; None if no login is needed."""
        if self.auth == "kerberos":
            return lambda address: Kerberos(self.kerberos_service, address.host)
        if self.auth == "plain" and self.user is not None and self.password is not None:
            mechanism = Plain(self.user, self.password.get_secret_value())
            return lambda address: mechanism
        return None

    def user_and_groups(self) -> tuple[str, Sequence[str]] | None:
        """Returns the user and the groups to send; None if none are configured."""
        if self.ugi is None:
            return None
        user, _, groups = self.ugi.partition(":")
        return user.strip(), [group.strip() for group in groups.split(",") if group.strip()]


class Hive2Settings(HiveSettings):
    """Properties of a Hive Metastore without catalogs."""

    backend = "hive2"
