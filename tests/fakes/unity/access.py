"""Rights of users on a Unity Catalog server with authorization."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..faults import Received
from .errors import forbidden, unauthenticated


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    grants: frozenset[str] | None = None
    """Full names of the only tables that the user may read; None for all rights."""

    def sees(self, full_name: str) -> bool:
        """Returns whether listings contain a table, or a schema or catalog of such tables."""
        if self.grants is None:
            return True
        return any(grant == full_name or grant.startswith(f"{full_name}.") for grant in self.grants)

    def check(self, full_name: str) -> None:
        """Raises an error if the user may not read an existing object."""
        if not self.sees(full_name):
            raise forbidden()

    @property
    def is_authorized(self) -> bool:
        """Returns whether the server checks rights."""
        return self is not EVERYBODY

    def check_owner(self) -> None:
        """Raises an error for a user without the right to change objects."""
        if self.grants is not None:
            raise forbidden()


EVERYBODY = User()


class Access:
    """The valid tokens of a server; None disables authorization."""

    def __init__(self, tokens: Collection[str] | None) -> None:
        self._users: dict[str, User | None] | None = None if tokens is None else {t: User() for t in tokens}

    def set(self, token: str, user: User | None) -> None:
        """Makes a token valid for a user; None is a user that the catalog does not know."""
        if self._users is None:
            raise ValueError("authorization: off; give a set of tokens, which may be empty")
        self._users[token] = user

    def expire(self) -> None:
        """Makes all tokens known so far invalid."""
        if self._users is not None:
            self._users.clear()

    def user(self, request: Received) -> User:
        """Returns the user of a request; raises an error for an invalid token."""
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
