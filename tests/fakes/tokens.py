"""Bearer tokens a fake catalog accepts, and the OAuth2 endpoint that issues them."""

from __future__ import annotations

from urllib.parse import parse_qsl

from .faults import Answer, Received


class Tokens:
    """Accepts one fixed token and those it issued itself, until they are expired.

    With neither a fixed token nor a client, nothing is checked and any client is issued a token.
    """

    def __init__(
        self,
        fixed: str | None = None,
        *,
        client: tuple[str, str] | None = None,
        expires_in: int | None = None,
        expired_status: int = 401,
    ) -> None:
        self._client = client
        self._expires_in = expires_in
        self._expired_status = expired_status
        self._checks = fixed is not None or client is not None
        self._good = set() if fixed is None else {fixed}
        self._expired: set[str] = set()
        self.requests = 0
        """How many times a token was asked for, refused ones included."""
        self.scopes: list[str | None] = []
        """The scope of each request for a token; None where it named none."""

    def expire(self) -> None:
        """Makes every token known so far one that is refused."""
        self._expired |= self._good
        self._good.clear()

    def refusal(self, request: Received) -> int | None:
        """The status with which a request is refused for its token; None if it is accepted."""
        # A gateway that checks signatures passes on what the client had in that header.
        given = request.headers.get("Original-Authorization", request.headers.get("Authorization", ""))
        scheme, _, token = given.partition(" ")
        if not self._checks or (scheme.lower() == "bearer" and token in self._good):
            return None
        return self._expired_status if token in self._expired else 401

    def issue(self, request: Received) -> Answer:
        """Answers a request of the client-credentials grant."""
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        self.requests += 1
        self.scopes.append(form.get("scope"))
        if form.get("grant_type") != "client_credentials":
            return _refused(400, "unsupported_grant_type")
        if self._client not in (None, (form.get("client_id"), form.get("client_secret"))):
            return _refused(401, "invalid_client")
        token = f"client-credentials-token:sub={form.get('client_id')}:{self.requests}"
        self._good.add(token)
        lifetime = {} if self._expires_in is None else {"expires_in": self._expires_in}
        return Answer.of({"access_token": token, "token_type": "Bearer", **lifetime})


def _refused(status: int, error: str) -> Answer:
    # As in RFC 6749, `error` is a string here and not an object as in the catalogs' own errors.
    return Answer.of({"error": error, "error_description": f"refused: {error}"}, status)
