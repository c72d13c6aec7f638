"""The file with the principals of a gateway and the hashes of their tokens.

[alice]
rights = "read"
only = ["sales.**"]
sha256 = ["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from lance_namespace.errors import InvalidInputError

from lance_ns_async.gateway.rights import OWNER, Principal

log: logging.Logger = logging.getLogger(__name__)

HASHES = "sha256"
"""The key of the hashes. Tokens are random numbers of 256 bits, which nobody can guess, so they need no slow hash."""

_FRESH = 1.0  # Seconds after which the file is looked at again.


class Tokens:
    """The principals of one gateway; changes of their file take effect within a second.

    Args:
        path: The file; None for the single principal `owner`.
        token: The token of `owner`, who may do everything; None for none.
    """

    def __init__(self, path: Path | None, token: str | None) -> None:
        self._owners_hash: str | None = None
        if token is not None:
            if not (token.isascii() and token.isprintable() and token.strip() == token != ""):
                # The message must not show the token.
                raise InvalidInputError(
                    "token: empty, or contains characters that HTTP headers do not allow; use printable ASCII"
                )
            self._owners_hash = hash_of(token)
        self._file = None if path is None else _File(path)

    def find(self, token: str) -> Principal | None:
        """Returns the principal with a token; None if there is none."""
        digest = hash_of(token)
        if self._owners_hash is not None and hmac.compare_digest(digest, self._owners_hash):
            return OWNER
        # The time of a look-up depends on Python's own hash of the digest, which says nothing about the token.
        return None if self._file is None else self._file.principals().get(digest)


@dataclass(slots=True)
class _File:
    """A file of principals, read again after it has changed."""

    path: Path
    _state: object = field(init=False)
    _principals: Mapping[str, Principal] = field(init=False)
    _looked: float = field(init=False)

    def __post_init__(self) -> None:
        try:
            self._read()
        except OSError as e:
            raise InvalidInputError(f"tokens {str(self.path)!r}: {e.strerror or e}") from e

    def principals(self) -> Mapping[str, Principal]:
        """Returns the principals by the hashes of their tokens; the last ones if the file cannot be read now."""
        if monotonic() - self._looked >= _FRESH:
            try:
                if self._stat() != self._state:
                    self._read()
            except (OSError, InvalidInputError) as e:
                log.error("gateway: the tokens of %s stay as they were: %s", self.path, e)
            self._looked = monotonic()
        return self._principals

    def _read(self) -> None:
        self._looked, state = monotonic(), self._stat()
        self._principals = parse(self.path.read_bytes(), str(self.path))
        self._state = state

    def _stat(self) -> object:
        stat = os.stat(self.path)
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


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
