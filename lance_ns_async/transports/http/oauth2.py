"""Bearer tokens by the OAuth2 client-credentials grant, renewed when they expire or are rejected."""

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
from lance_ns_async.transports.http.transport import Explain, HttpTransport

OAUTH2_ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    # RFC 6749 allows 400 for an unknown client; some servers respond with 406.
    400: UnauthenticatedError,
    406: UnauthenticatedError,
}

LIFETIME = 3600.0
"""Default lifetime in seconds of a token whose response contains none."""


class OAuth2Settings(HttpSettings):
    """Additional settings of backends that support OAuth2 client credentials."""

    credential: SecretStr | None = None
    """`client_id:client_secret` for OAuth2 client credentials; without a colon, only the secret."""
    scope: str = "catalog"

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.auth_token is not None and self.credential is not None:
            raise ValueError("auth_token and credential: give one of them, a token or what gets one")
        return self

    def client(self) -> tuple[str, str]:
        """Returns the client's id, which may be empty, and its secret."""
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
    explain_error: Explain | None = None,
) -> RenewedTokens:
    """Returns the tokens of the client-credentials grant; fetches none yet.

    Spec: RFC 6749, section 4.4.

    Args:
        uri: The URL of the token endpoint.
        client: The client's id; if it is empty, only the secret is sent.
        headers: Additional headers of the token request.
        lifetime: Lifetime in seconds of a token whose response contains none.
        explain_error: Reads the codes and the message of an error; None means the function `explain`.
    """
    form = {"grant_type": "client_credentials", "client_secret": secret, "scope": scope}
    if client:
        form["client_id"] = client
    # The fetch has its own slots, so that calls that wait for a token cannot block it.
    http = HttpTransport(
        wire,
        caller.beside(errors),
        base=uri,
        headers={"accept": "application/json", **(headers or {})},
        explain=explain_error or explain,
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
            # Whatever the result of the fetch, the call that needed the token was not sent.
            if (failure := failure_of(e)) is not None:
                failure.delivered = False
            raise

    return RenewedTokens(fetch)


def token(body: Any, lifetime: float = LIFETIME) -> Token:
    """Returns the token in a response; `lifetime` applies if the response contains none."""
    value = body["access_token"]
    if not (value.isascii() and value.isprintable()):
        raise ValueError("access_token is no text that a header can hold")
    try:
        return Token(value, float(body.get("expires_in") or lifetime))
    except (TypeError, ValueError):
        # The value is not quoted, because it comes from the response that contains the token.
        raise ValueError("expires_in is no number") from None


def explain(body: Any) -> tuple[tuple[Code, ...], str]:
    """Returns codes and message of an error in OAuth2's format, or in the Iceberg REST format that catalogs use."""
    error = body["error"]
    if isinstance(error, str):
        kind, message = None, f"{error}: {told}" if (told := body.get("error_description")) else error
    else:
        kind, told = error.get("type"), error["message"]
        message = told
    if not (isinstance(told, str | None) and isinstance(message, str)):
        raise TypeError("a message is a text")
    return (kind,) if kind else (), message
