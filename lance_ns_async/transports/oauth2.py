"""OAuth2 client credentials: an id and a secret become bearer tokens, renewed when they end or are refused."""

from __future__ import annotations

from typing import Any

import httpx
from lance_namespace.errors import UnauthenticatedError

from lance_ns_async.errors import HTTP_ERRORS, Code, ErrorTable
from lance_ns_async.model import NamespaceId
from lance_ns_async.policy import Caller
from lance_ns_async.transports.auth import RenewedTokens, Token
from lance_ns_async.transports.http import HttpTransport

OAUTH2_ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    # RFC 6749 answers 400 to a client it does not know; some servers answer 406.
    400: UnauthenticatedError,
    406: UnauthenticatedError,
}

LIFETIME = 3600.0
"""Seconds a token is taken to live whose lifetime the server does not tell."""


def client_credentials(
    wire: httpx.AsyncBaseTransport, caller: Caller, *, uri: str, client: str, secret: str, scope: str
) -> RenewedTokens:
    """Tokens of the client-credentials grant, got from `uri`; an empty `client` sends the secret alone.

    Spec: RFC 6749, section 4.4.
    """
    form = {"grant_type": "client_credentials", "client_secret": secret, "scope": scope}
    if client:
        form["client_id"] = client
    # With slots of its own: what waits for a token then holds none that fetching it would need.
    http = HttpTransport(
        wire,
        caller.beside(OAUTH2_ERRORS),
        base=uri,
        headers={"accept": "application/json"},
        explain=explain,
        confidential=True,
    )

    async def fetch() -> Token:
        return await http.request(
            "POST", "", form=form, subject=NamespaceId(), operation="fetch_token", decode=token, safe=True
        )

    return RenewedTokens(fetch)


def token(body: Any) -> Token:
    """The token of an answer."""
    value = body["access_token"]
    if not (value.isascii() and value.isprintable()):
        raise ValueError("access_token is no text that a header can hold")
    return Token(value, float(body.get("expires_in") or LIFETIME))


def explain(body: Any) -> tuple[tuple[Code, ...], str]:
    """The error as OAuth2 spells it, or as catalogs do that answer in their own form."""
    error = body["error"]
    if isinstance(error, str):
        return (), f"{error}: {body['error_description']}" if "error_description" in body else error
    return (), error["message"]
