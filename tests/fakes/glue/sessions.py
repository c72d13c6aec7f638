"""The temporary credentials from the fake's AssumeRole, and which of them are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moto.core.utils import utcnow
from moto.sts.models import AssumedRole, sts_backends

from ..faults import Received
from .calls import signer_of


class Sessions:
    """The known temporary credentials. Permanent ones are not recorded: all are accepted, until they are expired."""

    def __init__(self, *, lenient: bool) -> None:
        """Creates it as lenient as moto: only expired credentials are refused."""
        self._lenient = lenient
        self._roles: dict[str, AssumedRole] = {}
        self._expired: set[str] = set()

    @property
    def issued(self) -> Sequence[str]:
        """The access key ids of all credentials, oldest first."""
        return list(self._roles)

    @property
    def keys(self) -> Mapping[str, tuple[str, str | None]]:
        """The secret and the session token of each key."""
        return {key: (role.secret_access_key, role.session_token) for key, role in self._roles.items()}

    def note(self) -> None:
        """Records the credentials that moto has issued since the last call."""
        for account in sts_backends.values():
            for backend in account.values():
                for role in backend.assumed_roles:
                    self._roles.setdefault(role.access_key_id, role)

    def expire(self, access_key_id: str | None) -> None:
        """Makes these credentials invalid, or all so far."""
        self._expired.update(self._roles if access_key_id is None else [access_key_id])

    def clear(self) -> None:
        """Forgets all credentials."""
        self._roles.clear()
        self._expired.clear()

    def fault(self, request: Received) -> str | None:
        """Returns the error code for the credentials of a request; None if they are valid."""
        key, _ = signer_of(request)
        if key in self._expired:
            return "ExpiredTokenException"
        role = self._roles.get(key)
        if role is None or self._lenient:
            return None
        if request.headers.get("X-Amz-Security-Token") != role.session_token:
            return "UnrecognizedClientException"
        return "ExpiredTokenException" if role.expiration <= utcnow() else None
