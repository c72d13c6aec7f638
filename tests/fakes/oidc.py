"""A fake OpenID Connect issuer, with the addresses, documents and tokens of a Keycloak realm."""

from __future__ import annotations

import base64
import hashlib
import time
from html import escape
from typing import Any, Literal
from urllib.parse import parse_qsl, quote_plus, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.fakes.http import FakeServer
from tests.fakes.server import Answer, Received

Algorithm = Literal["RS256", "ES256", "EdDSA"]

_REALM = "/realms/lake"
_CERTS = f"{_REALM}/protocol/openid-connect/certs"
_TOKEN = f"{_REALM}/protocol/openid-connect/token"
_AUTH = f"{_REALM}/protocol/openid-connect/auth"


class FakeIssuer(FakeServer):
    """An issuer that publishes, like a realm, its active and passive keys, and one for encryption."""

    def __init__(self) -> None:
        super().__init__()
        self.private: dict[str, Any] = {}  # The private keys by their ids; the last one signs.
        self.published: dict[str, dict[str, Any]] = {}
        self.forms: list[dict[str, str]] = []  # The forms of the token requests
        self.client, self.secret = "explorer", ""  # The client of the authorization code flow; public without a secret
        self.authentication = ["client_secret_basic", "client_secret_post"]  # The ways in which it may authenticate
        self.redirect_uris: set[str] = set()
        self.has_form = False  # Whether a button stands between the authorization request and its response
        self.user: dict[str, Any] = {}  # Changes of the claims of the user's access token
        self.id_claims: dict[str, Any] = {}  # Changes of the claims of the user's ID token
        self.codes: dict[str, dict[str, str]] = {}  # The authorization request of each unused code
        self.publish({"kid": "enc-1", "kty": "RSA", "alg": "RSA-OAEP", "use": "enc", "n": "AQAB", "e": "AQAB"})
        self.rotate("RS256")

    @property
    def issuer(self) -> str:
        return f"{self.url}{_REALM}"

    @property
    def token_endpoint(self) -> str:
        """Where tokens are exchanged for tokens with the same subject and the audience of the catalog."""
        return f"{self.url}{_TOKEN}"

    def publish(self, key: dict[str, Any]) -> None:
        self.published[key["kid"]] = key

    def rotate(self, algorithm: Algorithm = "ES256") -> str:
        """Makes a new key the one that signs, and returns its id; the former ones stay published."""
        kid = f"key-{len(self.private)}"
        public: Any
        match algorithm:
            case "RS256":
                key: Any = rsa.generate_private_key(65537, 2048)
                public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
            case "ES256":
                key = ec.generate_private_key(ec.SECP256R1())
                public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
            case "EdDSA":
                key = ed25519.Ed25519PrivateKey.generate()
                public = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
        self.private[kid] = key
        self.publish({**public, "kid": kid, "use": "sig", "alg": algorithm})
        return kid

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Returns the claims of an access token; None leaves one out."""
        now = int(time.time())
        claims = {
            **{"exp": now + 300, "iat": now, "jti": "onrtac:1", "iss": self.issuer, "aud": ["lake", "account"]},
            **{"sub": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "typ": "Bearer", "azp": "spark", "scope": "email"},
            **{"realm_access": {"roles": ["offline_access"]}, "preferred_username": "owner"},
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def sign(self, kid: str | None = None, headers: dict[str, Any] | None = None, **changed: Any) -> str:
        """Returns a token with the claims; `headers` replace those of the token."""
        kid = kid or next(reversed(self.private))
        algorithm = self.published[kid]["alg"]
        return jwt.encode(self.claims(**changed), self.private[kid], algorithm, headers={"kid": kid, **(headers or {})})

    def handle(self, request: Received) -> Answer:
        if str(request) == f"POST {_TOKEN}":
            return self._give_token(request, dict(parse_qsl(request.body.decode())))
        if request.path.startswith(f"{_AUTH}?"):
            if self.has_form and request.method == "GET":
                return Answer.of(f'<form method="post" action="{escape(request.path)}"><button>Log in</button></form>')
            return self._authorize(dict(parse_qsl(request.path.partition("?")[2])))
        if str(request) == f"GET {_CERTS}":
            return Answer.of({"keys": [*self.published.values()]})
        if str(request) != f"GET {_REALM}/.well-known/openid-configuration":
            return Answer.of({"error": "HTTP 404 Not Found"}, 404)
        return Answer.of(
            {
                "issuer": self.issuer,
                "jwks_uri": f"{self.url}{_CERTS}",
                "token_endpoint": self.token_endpoint,
                "authorization_endpoint": f"{self.url}{_AUTH}",
                "authorization_response_iss_parameter_supported": True,
                "token_endpoint_auth_methods_supported": self.authentication,
                "id_token_signing_alg_values_supported": ["PS384", "RS256", "EdDSA", "ES256", "HS256", "none"],
            }
        )

    def _authorize(self, query: dict[str, str]) -> Answer:
        """Signs the user in, without a question, and sends the browser back with a code."""
        if query["client_id"] != self.client or query["redirect_uri"] not in self.redirect_uris:
            return Answer.of("<h1>We are sorry...</h1>Invalid parameter: redirect_uri", 400)
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        assert "openid" in query["scope"].split() and len(query["code_challenge"]) == 43
        code = f"code-{len(self.codes)}.of+the/user"
        self.codes[code] = query
        back = urlencode({"state": query["state"], "session_state": "s", "iss": self.issuer, "code": code})
        return Answer(302, b"", {"Location": f"{query['redirect_uri']}?{back}"})

    def _redeem(self, request: Received, form: dict[str, str]) -> Answer:
        """Returns the tokens for a code, which is used once."""
        pair = f"{quote_plus(self.client)}:{quote_plus(self.secret)}"
        known = {
            "client_secret_basic": request.headers.get("Authorization")
            == f"Basic {base64.b64encode(pair.encode()).decode()}",
            "client_secret_post": (form.get("client_id"), form.get("client_secret")) == (self.client, self.secret),
        }
        is_public = not self.secret and form.get("client_id") == self.client
        if not (is_public or any(known[it] for it in self.authentication)):
            return Answer.of({"error": "invalid_client", "error_description": "Invalid client credentials"}, 401)
        query = self.codes.pop(form["code"], {})
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (query.get("redirect_uri"), query.get("code_challenge")) != (form["redirect_uri"], challenge):
            return Answer.of({"error": "invalid_grant", "error_description": f"Code not valid: {form['code']}"}, 400)
        claims = {"aud": self.client, "azp": self.client, "nonce": query["nonce"], "typ": "ID", **self.id_claims}
        tokens = {"access_token": self.sign(**self.user), "id_token": self.sign(**claims)}
        return Answer.of({**tokens, "token_type": "Bearer", "expires_in": 300, "scope": query["scope"]})

    def _give_token(self, request: Received, form: dict[str, str]) -> Answer:
        self.forms.append(form)
        if form["grant_type"] == "authorization_code":
            return self._redeem(request, form)
        if form["grant_type"] != "urn:ietf:params:oauth:grant-type:token-exchange":
            return Answer.of({"error": "unauthorized_client"}, 401)
        subject = jwt.decode(form["subject_token"], options={"verify_signature": False})["sub"]
        token = self.sign(sub=subject, aud="catalog", jti=f"trrtte:{len(self.forms)}")
        return Answer.of({"access_token": token, "token_type": "Bearer", "expires_in": 300})
