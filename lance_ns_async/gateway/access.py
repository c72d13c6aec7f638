"""Who may ask: whoever has the token, and no browser."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Self

from lance_namespace.errors import ErrorCode, InvalidInputError

from lance_ns_async.gateway.answers import Refused

TOKEN_HEADER = "x-lance-token"

_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")
"""A Host header: an address in brackets or a name, and perhaps a port."""


@dataclass(frozen=True, slots=True)
class Access:
    """The token that requests need, and the names under which they may ask for the server."""

    token: str = field(repr=False)
    hosts: frozenset[str] | None
    """None for any: a server that others can reach does not know its names."""

    @classmethod
    def to(cls, host: str, token: str | None, hosts: Iterable[str]) -> Self:
        """Access to a server that listens on `host`; a token is made up where none is given."""
        if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
            # Not the token itself.
            raise InvalidInputError("token: it is empty, or has characters that no header can carry")
        known = frozenset({"localhost", host.lower(), *map(str.lower, hosts)}) if is_loopback(host) else None
        return cls(secrets.token_urlsafe(32) if token is None else token, known)

    def check_sender(self, headers: Mapping[str, str]) -> None:
        """Refuses what a web page sent: from another origin, or by a name that somebody made mean this machine."""
        if "Origin" in headers:
            raise Refused(403, ErrorCode.PERMISSION_DENIED, "Permission denied: web pages may not ask this server")
        name = _host_name(headers.get("Host", "localhost"))
        if self.hosts is not None and name not in self.hosts and not is_loopback(name):
            message = (
                f"Permission denied: host {name!r} is none of this server's names; give it as one, or ask by address"
            )
            raise Refused(403, ErrorCode.PERMISSION_DENIED, message)

    def check_token(self, headers: Mapping[str, str]) -> None:
        """Refuses a request that does not show the token."""
        scheme, _, bearer = headers.get("Authorization", "").partition(" ")
        shown = [headers.get(TOKEN_HEADER), headers.get("x-api-key"), bearer if scheme.lower() == "bearer" else None]
        if not any(self._is_right(token.strip()) for token in shown if token is not None):
            where = f"`Authorization: Bearer`, or as `{TOKEN_HEADER}` or `x-api-key`"
            other = ", and the one that was shown is another" if any(shown) else ""
            message = f"Unauthenticated: the gateway wants its token, as {where}{other}"
            raise Refused(401, ErrorCode.UNAUTHENTICATED, message, {"WWW-Authenticate": "Bearer"})

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="surrogateescape"), self.token.encode())


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _host_name(header: str) -> str:
    """The name in a Host header, without the port and an address's brackets; all of it where it is none."""
    parts = _HOST.fullmatch(header)
    return header if parts is None else (parts[1] or parts[2] or "").lower()
