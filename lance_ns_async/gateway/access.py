"""Access control of the gateway: tokens are required, and requests from browsers are refused.

The principals and the hashes of their tokens are in a file:

[alice]
rights = "read"
only = ["sales.**"]
sha256 = ["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]

It may also have rules, which give rights to the tokens of an issuer by their claims:

[[oidc]]
claims = { groups = "data-readers" }
rights = "read"
only = ["sales.**"]
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls.waiting import set_client
from lance_ns_async.gateway.oidc import Issuer, Rule, TokenError
from lance_ns_async.gateway.request_log import RequestLog
from lance_ns_async.gateway.responses import RequestError
from lance_ns_async.gateway.rights import OWNER, Principal
from lance_ns_async.gateway.wire import is_loopback
from lance_ns_async.masked import MaskedText
from lance_ns_async.storage.watched_file import WatchedFile

TOKEN_HEADER = "x-lance-token"

_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")
"""A Host header: an address in brackets or a name, with an optional port."""

HASHES = "sha256"
"""The key of the hashes. Tokens are random numbers of 256 bits, which nobody can guess, so they need no slow hash."""

RULES = "oidc"
"""The key of the rules."""


class TokensFile(NamedTuple):
    """The content of a file of principals."""

    principals: Mapping[str, Principal]  # By the hashes of their tokens.
    rules: Sequence[Rule]


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
        self._file: WatchedFile[TokensFile] | None = None
        if path is not None:
            self._file = WatchedFile("tokens", str(path), partial(parse, source=str(path)))
            self._file.value()

    def find(self, token: str) -> Principal | None:
        """Returns the principal with a token; None if there is none."""
        digest = hash_of(token)
        if self._owners_hash is not None and hmac.compare_digest(digest, self._owners_hash):
            return OWNER
        # The time of a look-up depends on Python's own hash of the digest, which says nothing about the token.
        return None if self._file is None else self._file.value().principals.get(digest)

    def rules(self) -> Sequence[Rule]:
        """Returns the rules of the file; the same object until it changes."""
        return () if self._file is None else self._file.value().rules


def parse(content: bytes, source: str) -> TokensFile:
    """Returns the principals and the rules in a file."""
    try:
        tables = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise InvalidInputError(f"tokens {source!r}: not a TOML file ({e})") from e
    principals: dict[str, Principal] = {}
    rules: list[Rule] = []
    for name, fields in tables.items():
        label = name
        try:
            if name == RULES and isinstance(fields, list):
                for number, rule in enumerate(fields, 1):
                    label = f"[[{RULES}]] number {number}"
                    rules.append(_parse_rule(rule))
                continue
            if name == RULES and isinstance(fields, dict) and HASHES not in fields:
                raise InvalidInputError(f"write [[{RULES}]], with two brackets, for each rule")
            principal, hashes = _parse_entry(name, fields)
        except InvalidInputError as e:
            raise InvalidInputError(f"tokens {source!r}: {label}: {e}") from None
        for digest in hashes:
            if digest in principals:
                raise InvalidInputError(f"tokens {source!r}: {name} has the same token as {principals[digest].name}")
            principals[digest] = principal
    return TokensFile(principals, rules)


def _parse_entry(name: str, fields: Any) -> tuple[Principal, list[str]]:
    principal = _parse_rights(name, fields, HASHES)
    hashes = fields.get(HASHES, [])
    if not isinstance(hashes, list) or not all(isinstance(it, str) and len(it) == 64 for it in hashes):
        raise InvalidInputError(f"{HASHES}: must be a list of SHA-256 sums with 64 hexadecimal digits")
    return principal, [digest.lower() for digest in hashes]


def _parse_rule(fields: Any) -> Rule:
    rights = _parse_rights(RULES, fields, "claims")
    _check_claims(claims := fields.get("claims"))
    return Rule(claims, rights)


def _check_claims(claims: Any, label: str = "claims") -> None:
    if isinstance(claims, list):
        raise InvalidInputError(f"{label}: must be one value, not a list; write a rule for each value")
    if not isinstance(claims, dict) or not claims:
        kinds = "" if label == "claims" else "a text, a whole number, true, false or "
        example = "a table of claims and their values, such as { groups = 'readers' }"
        raise InvalidInputError(f"{label}: must be {kinds}{example}")
    for name, value in claims.items():
        if not isinstance(value, str | bool | int):
            _check_claims(value, f"{label}: {name}")


def _parse_rights(name: str, fields: Any, other: str) -> Principal:
    """Returns the principal of an entry that also has the field `other`."""
    if not isinstance(fields, dict):
        raise InvalidInputError("must be a table, such as [alice]")
    if unknown := fields.keys() - {"rights", "only", "credentials", other}:
        raise InvalidInputError(f"{min(unknown)}: no such field; use rights, only, credentials and {other}")
    only = fields.get("only", [])
    if not isinstance(only, list):
        raise InvalidInputError("only: must be a list of patterns, such as ['sales.**']")
    if "only" in fields and not only:
        # No pattern would mean all tables.
        raise InvalidInputError("only: must not be empty; use a pattern, or omit it for all tables")
    return Principal.parse(name, fields.get("rights"), only, credentials=fields.get("credentials", False))


def create_token() -> str:
    """Returns a new random token."""
    return f"lns_{secrets.token_urlsafe(32)}"


def hash_of(token: str) -> str:
    """Returns the hash of a token, as in the file."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens of principals, the issuer of further ones, and the accepted host names."""

    tokens: Tokens = field(repr=False)
    issuer: Issuer | None
    hosts: frozenset[str] | None  # None for any name: a server that other machines reach does not know its names.

    @classmethod
    def to(cls, host: str, tokens: Tokens, issuer: Issuer | None, hosts: Iterable[str]) -> Self:
        """Returns the access to a server that listens on `host`; `hosts` are further names for a loopback address."""
        names = frozenset({"localhost", host.lower(), *map(str.lower, hosts)}) if is_loopback(host) else None
        return cls(tokens, issuer, names)

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

    async def identify(self, headers: Mapping[str, str], entry: RequestLog) -> Principal:
        """Returns the principal whose token a request has, which is then the client of the task and of the log."""
        scheme, _, bearer = headers.get("Authorization", "").partition(" ")
        values = [headers.get(TOKEN_HEADER), headers.get("x-api-key"), bearer if scheme.lower() == "bearer" else None]
        tokens = [value.strip() for value in values if value is not None]
        principal = next(filter(None, map(self.tokens.find, tokens)), None) or await self._verify(tokens, entry)
        entry.principal = principal.name
        set_client(principal.name)
        return principal

    async def _verify(self, tokens: Sequence[str], entry: RequestLog) -> Principal:
        """Returns the principal whose token of the issuer is among those that the file does not have."""
        # Encrypted JWTs have five parts.
        token = next((it for it in tokens if it.count(".") in (2, 4)), None)
        if token is None:
            where = f"`Authorization: Bearer`, or as `{TOKEN_HEADER}` or `x-api-key`"
            raise _unauthenticated(
                f"the gateway's token is {'wrong' if any(tokens) else 'missing'}; send it as {where}"
            )
        if self.issuer is None:
            raise _unauthenticated("the token is wrong; this gateway accepts no tokens of an identity provider")
        try:
            verified = await self.issuer.verify(token, self.tokens.rules())
        except TokenError as e:
            remedy = "get a new one" if str(e) == "expired" else "the gateway's log has the reason"
            raise _unauthenticated(f"the token is {e}; {remedy}") from None
        if verified.principal is None:
            entry.principal = verified.name
            message = f"Permission denied: no rule in the gateway's tokens file is for the claims of {verified.name}"
            raise RequestError(403, message)
        return replace(verified.principal, token=MaskedText(token))


def _unauthenticated(problem: str) -> RequestError:
    return RequestError(401, f"Unauthenticated: {problem}", {"WWW-Authenticate": "Bearer"})


def _host_name(header: str) -> str:
    """Returns the name in a Host header, without port and brackets; the whole header if it is malformed."""
    parts = _HOST.fullmatch(header)
    return header if parts is None else (parts[1] or parts[2] or "").lower()
