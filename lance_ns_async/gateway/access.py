"""Access control of the gateway: tokens are required, and requests from browsers are refused.

The principals and the hashes of their tokens are in a file:

[alice]
rights = "read"
only = ["sales.**"]
sha256 = ["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from lance_namespace.errors import InvalidInputError

from lance_ns_async.gateway.responses import RequestError
from lance_ns_async.gateway.rights import OWNER, Principal
from lance_ns_async.storage.watched_file import WatchedFile

TOKEN_HEADER = "x-lance-token"

_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")
"""A Host header: an address in brackets or a name, with an optional port."""

HASHES = "sha256"
"""The key of the hashes. Tokens are random numbers of 256 bits, which nobody can guess, so they need no slow hash."""


class Tokens:
    """The principals of one gateway: those of a file, whose changes take effect within a second, and `owner`."""

    def __init__(self, path: Path | None, token: str | None) -> None:
        self._owners_hash: str | None = None
        if token is not None:
            if not (token.isascii() and token.isprintable() and token.strip() == token != ""):
                # The message must not show the token.
                raise InvalidInputError(
                    "token: empty, or contains characters that HTTP headers do not allow; use printable ASCII"
                )
            self._owners_hash = hash_of(token)
        self._file: WatchedFile[Mapping[str, Principal]] | None = None
        if path is not None:
            self._file = WatchedFile("tokens", str(path), partial(parse, source=str(path)))
            self._file.value()

    def find(self, token: str) -> Principal | None:
        """Returns the principal with a token; None if there is none."""
        digest = hash_of(token)
        if self._owners_hash is not None and hmac.compare_digest(digest, self._owners_hash):
            return OWNER
        # The time of a look-up depends on Python's own hash of the digest, which says nothing about the token.
        return None if self._file is None else self._file.value().get(digest)


def parse(content: bytes, source: str) -> Mapping[str, Principal]:
    """Returns the principals in a file by the hashes of their tokens."""
    try:
        tables = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise InvalidInputError(f"tokens {source!r}: not a TOML file ({e})") from e
    principals: dict[str, Principal] = {}
    for name, fields in tables.items():
        try:
            principal, hashes = _parse_entry(name, fields)
        except InvalidInputError as e:
            raise InvalidInputError(f"tokens {source!r}: {name}: {e}") from None
        for digest in hashes:
            if digest in principals:
                raise InvalidInputError(f"tokens {source!r}: {name} has the same token as {principals[digest].name}")
            principals[digest] = principal
    return principals


def _parse_entry(name: str, fields: Any) -> tuple[Principal, list[str]]:
    if not isinstance(fields, dict):
        raise InvalidInputError("must be a table, such as [alice]")
    if unknown := fields.keys() - {"rights", "only", "credentials", HASHES}:
        raise InvalidInputError(f"{min(unknown)}: no such field; use rights, only, credentials and {HASHES}")
    only, hashes = fields.get("only", []), fields.get(HASHES, [])
    if not isinstance(only, list):
        raise InvalidInputError("only: must be a list of patterns, such as ['sales.**']")
    if not isinstance(hashes, list) or not all(isinstance(it, str) and len(it) == 64 for it in hashes):
        raise InvalidInputError(f"{HASHES}: must be a list of SHA-256 sums with 64 hexadecimal digits")
    if "only" in fields and not only:
        # No pattern would mean all tables.
        raise InvalidInputError("only: must not be empty; use a pattern, or omit it for all tables")
    principal = Principal.parse(name, fields.get("rights"), only, credentials=fields.get("credentials", False))
    return principal, [digest.lower() for digest in hashes]


def create_token() -> str:
    """Returns a new random token."""
    return f"lns_{secrets.token_urlsafe(32)}"


def hash_of(token: str) -> str:
    """Returns the hash of a token, as in the file."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens of principals, and the accepted host names."""

    tokens: Tokens = field(repr=False)
    hosts: frozenset[str] | None  # None for any name: a server that other machines reach does not know its names.

    @classmethod
    def to(cls, host: str, tokens: Tokens, hosts: Iterable[str]) -> Self:
        """Returns the access to a server that listens on `host`; `hosts` are further names for a loopback address."""
        names = frozenset({"localhost", host.lower(), *map(str.lower, hosts)}) if is_loopback(host) else None
        return cls(tokens, names)

    def check_sender(self, headers: Mapping[str, str]) -> None:
        """Refuses requests of web pages: cross-origin requests and DNS rebinding."""
        if "Origin" in headers:
            raise RequestError(403, "Permission denied: requests from web pages are not allowed")
        name = _host_name(headers.get("Host", "localhost"))
        if self.hosts is not None and name not in self.hosts and not is_loopback(name):
            message = (
                f"Permission denied: host {name!r} is not a name of this server; use its address, "
                "or add the name to the server's hosts"
            )
            raise RequestError(403, message)

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
        raise RequestError(401, message, {"WWW-Authenticate": "Bearer"})


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
