"""Access control of the gateway: tokens are required, and requests from browsers are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Self

from lance_namespace.errors import ErrorCode

from lance_ns_async.gateway.responses import RequestError
from lance_ns_async.gateway.rights import Principal
from lance_ns_async.gateway.tokens import Tokens

TOKEN_HEADER = "x-lance-token"

_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")
"""A Host header: an address in brackets or a name, with an optional port."""


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens of principals, and the accepted host names."""

    tokens: Tokens = field(repr=False)
    hosts: frozenset[str] | None
    """None accepts any name: a server that is reachable from other machines does not know its names."""

    @classmethod
    def to(cls, host: str, tokens: Tokens, hosts: Iterable[str]) -> Self:
        """Returns the access to a server that listens on `host`.

        Args:
            host: The address or name on which the server listens.
            tokens: The tokens of principals.
            hosts: Additional host names to accept if `host` is a loopback address.
        """
        names = frozenset({"localhost", host.lower(), *map(str.lower, hosts)}) if is_loopback(host) else None
        return cls(tokens, names)

    def check_sender(self, headers: Mapping[str, str]) -> None:
        """Refuses requests of web pages: cross-origin requests and DNS rebinding."""
        if "Origin" in headers:
            raise RequestError(
                403, ErrorCode.PERMISSION_DENIED, "Permission denied: requests from web pages are not allowed"
            )
        name = _host_name(headers.get("Host", "localhost"))
        if self.hosts is not None and name not in self.hosts and not is_loopback(name):
            message = (
                f"Permission denied: host {name!r} is not a name of this server; use its address, "
                "or add the name to the server's hosts"
            )
            raise RequestError(403, ErrorCode.PERMISSION_DENIED, message)

    def identify(self, headers: Mapping[str, str]) -> Principal:
        """Returns the principal whose token a request has."""
        scheme, _, bearer = headers.get("Authorization", "").partition(" ")
        tokens = [headers.get(TOKEN_HEADER), headers.get("x-api-key"), bearer if scheme.lower() == "bearer" else None]
        for token in tokens:
            if token is not None and (principal := self.tokens.find(token.strip())) is not None:
                return principal
        where = f"`Authorization: Bearer`, or as `{TOKEN_HEADER}` or `x-api-key`"
        reason = "wrong" if any(tokens) else "missing"
        message = f"Unauthenticated: the gateway's token is {reason}; send it as {where}"
        raise RequestError(401, ErrorCode.UNAUTHENTICATED, message, {"WWW-Authenticate": "Bearer"})


def is_loopback(host: str) -> bool:
    """Returns whether a server that listens on `host` is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _host_name(header: str) -> str:
    """Returns the name in a Host header, without port and brackets; the whole header if it is malformed."""
    parts = _HOST.fullmatch(header)
    return header if parts is None else (parts[1] or parts[2] or "").lower()
