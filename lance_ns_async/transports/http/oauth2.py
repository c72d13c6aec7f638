"""OAuth2 client credentials: an id and a secret become bearer tokens, renewed when they end or are refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import httpx
from lance_namespace.errors import LanceNamespaceError, UnauthenticatedError
from pydantic import SecretStr, model_validator

from lance_ns_async.calls.policy import Caller
from lance_ns_async.errors import HTTP_ERRORS, Code, ErrorTable, failure_of
from lance_ns_async.model import NamespaceId
from lance_ns_async.settings import HttpSettings
from lance_ns_async.transports.http.auth import RenewedTokens, Token
from lance_ns_async.transports.http.transport import HttpTransport

OAUTH2_ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    # RFC 6749 answers 400 to a client it does not know; some servers answer 406.
    400: UnauthenticatedError,
    406: UnauthenticatedError,
}

LIFETIME = 3600.0
"""Seconds a token is taken to live whose lifetime the server does not tell, unless the backend knows better."""


class OAuth2Settings(HttpSettings):
    """What every backend can be told besides that can get its tokens by client credentials."""

    credential: SecretStr | None = None
    """`client_id:client_secret` for OAuth2 client credentials; without a colon the secret alone."""
    scope: str = "catalog"

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.auth_token is not None and self.credential is not None:
            raise ValueError("auth_token and credential: give one of them, a token or what gets one")
        return self

    def client(self) -> tuple[str, str]:
        """The client's id, which may be empty, and its secret."""
        told = self.credential.get_secret_value() if self.credential else ""
        id, colon, secret = told.partition(":")
        return (id, secret) if colon else ("", told)


def client_credentials(
    wire: httpx.AsyncBaseTransport,
    caller: Caller,
    *,
    uri: str,
    client: str,
    secret: str,
    scope: str,
    headers: Mapping[str, str] | None = None,
    errors: ErrorTable = OAUTH2_ERRORS,
    lifetime: float = LIFETIME,
) -> RenewedTokens:
    """Tokens of the client-credentials grant, got from `uri`; an empty `client` sends the secret alone.

    `lifetime` is that of a token which comes without one. Spec: RFC 6749, section 4.4.
    """
    form = {"grant_type": "client_credentials", "client_secret": secret, "scope": scope}
    if client:
        form["client_id"] = client
    # With slots of its own: what waits for a token then holds none that fetching it would need.
    http = HttpTransport(
        wire,
        caller.beside(errors),
        base=uri,
        headers={"accept": "application/json", **(headers or {})},
        explain=explain,
        confidential=True,
        secrets=[secret],
    )

    async def fetch() -> Token:
        try:
            return await http.request(
                "POST",
                "",
                form=form,
                subject=NamespaceId(),
                operation="fetch_token",
                decode=partial(token, lifetime=lifetime),
                safe=True,
            )
        except LanceNamespaceError as e:
            # Whatever became of this, the call that wanted the token was not carried out.
            if (failure := failure_of(e)) is not None:
                failure.delivered = False
            raise

    return RenewedTokens(fetch)


def token(body: Any, lifetime: float = LIFETIME) -> Token:
    """The token of an answer; `lifetime` where that does not tell how long it lives."""
    value = body["access_token"]
    if not (value.isascii() and value.isprintable()):
        raise ValueError("access_token is no text that a header can hold")
    try:
        return Token(value, float(body.get("expires_in") or lifetime))
    except (TypeError, ValueError):
        # Not quoted: it stands beside the token.
        raise ValueError("expires_in is no number") from None


def explain(body: Any) -> tuple[tuple[Code, ...], str]:
    """The error as OAuth2 spells it, or as catalogs do that answer in their own form."""
    error = body["error"]
    if isinstance(error, str):
        kind, message = None, f"{error}: {told}" if (told := body.get("error_description")) else error
    else:
        kind, told = error.get("type"), error["message"]
        message = told
    if not (isinstance(told, str | None) and isinstance(message, str)):
        raise TypeError("a message is a text")
    return (kind,) if kind else (), message
