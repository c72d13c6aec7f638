"""Bearer tokens that a fake catalog accepts, and the OAuth2 endpoint that issues them."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from tests.fakes.http import FakeServer
from tests.fakes.server import Answer, Received

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


class Tokens:
    """Accepts one fixed token and the issued ones, until they expire. With neither a fixed token nor a client, nothing
    is checked and all clients get tokens."""

    def __init__(
        self,
        fixed: str | None = None,
        *,
        client: tuple[str, str] | None = None,
        expires_in: int | None = None,
        expired_status: int = 401,
        subjects: Collection[str] = (),
        refreshes: bool = False,
    ) -> None:
        """Creates an endpoint. `subjects` are exchanged for its own tokens, without a client's secret. With
        `refreshes`, each token comes with a refresh token for one use."""
        self.subjects = set(subjects)  # Tokens of other issuers that are exchanged for its own
        self.forms: list[dict[str, str]] = []  # The form of each request for a token
        self._refreshes = refreshes
        self._refresh_tokens: set[str] = set()
        self._client = client
        self._expires_in = expires_in
        self._expired_status = expired_status
        self._checks = fixed is not None or client is not None
        self._good = set() if fixed is None else {fixed}
        self._expired: set[str] = set()
        self.requests = 0  # The number of requests for tokens, including refused ones
        self.scopes: list[str | None] = []  # The scope of each request for a token; None for requests without one

    def expire(self) -> None:
        self._expired |= self._good
        self._good.clear()

    def accept(self, token: str) -> None:
        self._checks = True
        self._good.add(token)

    def revoke_refresh_tokens(self) -> None:
        self._refresh_tokens.clear()

    def refusal(self, request: Received) -> int | None:
        """Returns the status for a request with an invalid token; None if the token is accepted."""
        # A gateway that checks signatures forwards the client's own value of that header.
        header = request.headers.get("Original-Authorization", request.headers.get("Authorization", ""))
        scheme, _, token = header.partition(" ")
        if not self._checks or (scheme.lower() == "bearer" and token in self._good):
            return None
        return self._expired_status if token in self._expired else 401

    def issue(self, request: Received) -> Answer:
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        self.requests += 1
        self.forms.append(form)
        self.scopes.append(form.get("scope"))
        grant = form.get("grant_type")
        if grant not in ("client_credentials", "refresh_token", EXCHANGE):
            return _refused(400, "unsupported_grant_type")
        knows_client = self._client in (None, (form.get("client_id"), form.get("client_secret")))
        if grant == EXCHANGE and form.get("subject_token") not in self.subjects:
            return _refused(400, "invalid_grant")
        if grant == "refresh_token":
            if form.get("refresh_token") not in self._refresh_tokens:
                return _refused(400, "invalid_grant")
            self._refresh_tokens.remove(form["refresh_token"])
        elif grant == "client_credentials" and not knows_client:
            return _refused(401, "invalid_client")
        token = f"client-credentials-token:sub={form.get('client_id')}:{self.requests}"
        self._good.add(token)
        body: dict[str, object] = {"access_token": token, "token_type": "Bearer"}
        if self._expires_in is not None:
            body["expires_in"] = self._expires_in
        if self._refreshes:
            body["refresh_token"] = f"refresh-token-{self.requests}"
            self._refresh_tokens.add(f"refresh-token-{self.requests}")
        return Answer.of(body)


class FakeIdentityProvider(FakeServer):
    """A separate token endpoint at `/token`, for catalogs that accept tokens of other issuers."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__()
        self.tokens = tokens

    def handle(self, request: Received) -> Answer:
        if str(request).partition("?")[0] != "POST /token":
            return Answer.of("<html><title>Sign in</title>no such page</html>", 404)
        return self.tokens.issue(request)


def _refused(status: int, error: str) -> Answer:
    # As in RFC 6749, `error` is a string here, and not an object as in the catalogs' own errors.
    return Answer.of({"error": error, "error_description": f"refused: {error}"}, status)
