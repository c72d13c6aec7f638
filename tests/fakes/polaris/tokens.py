"""The OAuth2 endpoint of a Polaris server, and the principals of its tokens."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from ..faults import Received
from ..iceberg.errors import Refusal

_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_REFUSALS = {
    "unauthorized_client": (401, "The client is not authorized"),
    "invalid_scope": (400, "The scope is invalid"),
    "invalid_client": (400, "The Client is invalid"),
    "unsupported_grant_type": (400, "The grant type is invalid"),
}


class OAuthError(Exception):
    """An error in the form of OAuth2, identified by its code."""

    @property
    def status(self) -> int:
        return _REFUSALS[str(self)][0]

    @property
    def body(self) -> dict[str, str | None]:
        return {"error": str(self), "error_description": _REFUSALS[str(self)][1], "error_uri": None}


@dataclass(frozen=True, slots=True)
class Grant:
    """The principal of a token, and its expiry by the endpoint's clock."""

    principal: str
    until: float


class PolarisTokens:
    """Issues tokens to clients with known secrets."""

    def __init__(self, clients: Mapping[str, str], lifetime: int) -> None:
        self.requests = 0
        """The number of requests for tokens, including refused ones."""
        self.scopes: list[str | None] = []
        """The scope of each request for a token; None for requests without one."""
        self._clients = dict(clients)
        self._lifetime = lifetime
        self._skipped = 0.0
        self._good: dict[str, Grant] = {}

    def forget(self) -> None:
        """Makes all tokens known so far invalid."""
        self._good.clear()

    def advance(self, seconds: float) -> None:
        """Moves the clock for the tokens."""
        self._skipped += seconds

    def principal(self, request: Received) -> str | None:
        """Returns the principal of a request's bearer token; None for a missing, invalid or expired token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        grant = self._good.get(token) if scheme.lower() == "bearer" else None
        return grant.principal if grant and self._now() < grant.until else None

    def issue(self, request: Received) -> dict[str, object]:
        """Returns the response body for a request for a token."""
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        self.requests += 1
        self.scopes.append(form.get("scope"))
        if "grant_type" not in form:
            raise Refusal(500, "NullPointerException", "Cannot read the grant type because it is null")
        principal = self._exchanged(form) if form.get("grant_type") == _EXCHANGE else self._known(request, form)
        return {
            "access_token": self.grant(principal),
            "token_type": "bearer",
            "issued_token_type": _ACCESS_TOKEN,
            "expires_in": self._lifetime,
        }

    def grant(self, principal: str) -> str:
        """Returns a new token in the form of a JWT."""
        claims = {"sub": principal, "iss": "polaris", "jti": secrets.token_hex(8)}
        parts = [{"alg": "RS256", "typ": "JWT"}, claims]
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        token = ".".join((*encoded, secrets.token_urlsafe(48)))
        self._good[token] = Grant(principal, self._now() + self._lifetime)
        return token

    def _known(self, request: Received, form: Mapping[str, str]) -> str:
        id, secret = _credentials(request, form)
        if form.get("grant_type") != "client_credentials":
            raise OAuthError("unsupported_grant_type")
        if not id:
            raise OAuthError("invalid_client")
        _check_scope(form)
        if id not in self._clients or self._clients[id] != secret:
            raise OAuthError("unauthorized_client")
        return id

    def _exchanged(self, form: Mapping[str, str]) -> str:
        grant = self._good.get(form.get("subject_token", ""))
        if grant is None or self._now() >= grant.until:
            raise OAuthError("invalid_client")
        _check_scope(form)
        return grant.principal

    def _now(self) -> float:
        return time.monotonic() + self._skipped


def _credentials(request: Received, form: Mapping[str, str]) -> tuple[str | None, str | None]:
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        id, _, secret = base64.b64decode(encoded).decode().partition(":")
        return id, secret
    return form.get("client_id"), form.get("client_secret")


def _check_scope(form: Mapping[str, str]) -> None:
    scopes = (form.get("scope") or "").split()
    if not scopes or not all(scope.startswith("PRINCIPAL_ROLE:") for scope in scopes):
        raise OAuthError("invalid_scope")
