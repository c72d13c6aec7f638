"""Who may see what of a Unity Catalog server whose authorization is on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..faults import Received
from .errors import forbidden, unauthenticated


@dataclass(frozen=True, slots=True)
class User:
    """Someone who was let in."""

    grants: frozenset[str] | None = None
    """Full names of the tables the user may read and no more; None: the user may do everything."""

    def sees(self, full_name: str) -> bool:
        """Whether lists show a table, or a schema or catalog of such tables."""
        if self.grants is None:
            return True
        return any(grant == full_name or grant.startswith(f"{full_name}.") for grant in self.grants)

    def check(self, full_name: str) -> None:
        """Raises where the user may not read what is there."""
        if not self.sees(full_name):
            raise forbidden()

    @property
    def is_authorized(self) -> bool:
        """Whether the server checks rights at all."""
        return self is not EVERYBODY

    def check_owner(self) -> None:
        """Raises for a user who may not change anything."""
        if self.grants is not None:
            raise forbidden()


EVERYBODY = User()


class Access:
    """The tokens a server knows; with None it asks for none."""

    def __init__(self, tokens: Collection[str] | None) -> None:
        self._users: dict[str, User | None] | None = None if tokens is None else {t: User() for t in tokens}

    def set(self, token: str, user: User | None) -> None:
        """Makes a token good for a user; None is one the catalog does not know."""
        if self._users is None:
            raise ValueError("authorization: off; give a set of tokens, which may be empty")
        self._users[token] = user

    def expire(self) -> None:
        """Makes every token known so far a bad one."""
        if self._users is not None:
            self._users.clear()

    def user(self, request: Received) -> User:
        """Who asks; raises for one who cannot be let in."""
        if self._users is None:
            return EVERYBODY
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer":
            raise unauthenticated("No authorization found.")
        if token not in self._users:
            raise unauthenticated("Invalid access token.")
        user = self._users[token]
        if user is None:
            raise forbidden(f"User not allowed: {token}")
        return user
