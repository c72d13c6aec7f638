"""The sign-in of browsers at the identity provider, by the authorization code flow with PKCE.

Specs: OpenID Connect Core 1.0, section 3.1; RFC 6749, sections 2.3.1 and 4.1; RFC 7636; RFC 9207.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.errors import one_line, shortened
from lance_ns_async.gateway.oidc import Issuer, TokenError
from lance_ns_async.masked import MaskedText
from lance_ns_async.storage.watched_file import WatchedFile
from lance_ns_async.transports.http.token_sources import parse_secret

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)

ENDPOINTS = ("authorization_endpoint", "token_endpoint")
"""The addresses that the issuer's configuration must have."""

ATTEMPT_LIFETIME = 600  # Seconds in which a browser must come back from the identity provider.
_MAX_VALUES = 1_000
_MAX_NEXT = 4_096  # Maximum number of characters of the page to return to.
_MAX_REASON = 200
_PRINTABLE = re.compile("[ -~]+")  # Client ids and codes, by RFC 6749, appendix A.
_SCOPE = re.compile(r"[!#-\[\]-~]+")


class TemporaryValues(Generic[T]):
    """Values by random ids, in memory; beyond the maximum number, the oldest one is removed."""

    def __init__(self, lifetime: float, clock: Callable[[], float] = monotonic) -> None:
        self._lifetime = lifetime
        self._clock = clock
        self._values: dict[str, tuple[T, float]] = {}

    def add(self, value: T) -> str:
        """Returns the new id of a value."""
        now = self._clock()
        self._values = {id: it for id, it in self._values.items() if it[1] > now}
        while len(self._values) >= _MAX_VALUES:
            del self._values[next(iter(self._values))]
        id = secrets.token_urlsafe(32)
        self._values[id] = value, now + self._lifetime
        return id

    def find(self, id: str) -> T | None:
        """Returns a value; None if there is none or its time is over."""
        value, end = self._values.get(id, (None, 0.0))
        return value if end > self._clock() else None

    def remove(self, id: str) -> T | None:
        """Removes a value and returns it; None if there is none or its time is over."""
        value = self.find(id)
        self._values.pop(id, None)
        return value


class SignInError(Exception):
    """A sign-in that failed; the message is for the sign-in page, and `next` is the page that was wanted."""

    def __init__(self, message: str, status: int = 401, next: str = "/ui") -> None:
        super().__init__(message)
        self.status = status
        self.next = next


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A sign-in that a browser has begun."""

    browser: str = field(repr=False)
    verifier: str = field(repr=False)
    nonce: str = field(repr=False)
    redirect_uri: str
    next: str


class CodeFlow:
    """The client of an issuer that signs browsers in."""

    def __init__(
        self,
        issuer: Issuer,
        client_id: str,
        secret_file: Path | None,
        scope: str | None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Reads the secret of a confidential client; None is for a public one."""
        if not _PRINTABLE.fullmatch(client_id):
            raise InvalidInputError(f"oidc_client_id {client_id!r}: must be printable ASCII, and not empty")
        scopes = ["openid"] if scope is None else scope.split()
        if not scopes or not all(map(_SCOPE.fullmatch, scopes)):
            message = "must be names in printable ASCII without '\"' and '\\', separated by spaces"
            raise InvalidInputError(f"oidc_scope {scope!r}: {message}; omit it to request only openid")
        self._issuer = issuer
        self._client_id = client_id
        self._scope = " ".join(dict.fromkeys(["openid", *scopes]))
        self._secret: WatchedFile[MaskedText] | None = None
        if secret_file is not None:
            self._secret = WatchedFile("oidc_client_secret_file", str(secret_file), parse_secret)
            self._secret.value()
        self._attempts = TemporaryValues[_Attempt](ATTEMPT_LIFETIME, clock)

    @property
    def host(self) -> str:
        """The host of the issuer, by which people know it."""
        return urlsplit(self._issuer.url).hostname or ""

    @property
    def refusal(self) -> str:
        """What to say if the access token of the issuer is not accepted."""
        return (
            f"{self.host} knows you, but its access token is not accepted: it must be a JWT for the audience "
            f"{self._issuer.audience!r}. Let the administrator add this audience to the access tokens of the client "
            f"{self._client_id!r} there."
        )

    def begin(self, browser: str, redirect_uri: str, next: str) -> str:
        """Returns the address at the issuer where a browser, named by a secret of its own, goes on."""
        verifier, nonce = MaskedText(secrets.token_urlsafe(32)), secrets.token_urlsafe(32)
        next = next if len(next) <= _MAX_NEXT else "/ui"
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": self._scope,
            "state": self._attempts.add(_Attempt(browser, verifier, nonce, redirect_uri, next)),
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{self._issuer.configuration['authorization_endpoint']}?{urlencode(query)}"

    async def finish(self, browser: str, fields: Mapping[str, str]) -> tuple[MaskedText, str]:
        """Returns the access token for what the issuer sent a browser back with, and the page that was wanted.

        Raises SignInError. Cost: one remote call, or none for what was not asked for.
        """
        attempt = self._attempts.remove(fields.get("state", ""))
        if attempt is None or not hmac.compare_digest(attempt.browser, browser):
            raise SignInError("This sign-in was not begun here, is finished, or took more than ten minutes; try again.")
        configuration = self._issuer.configuration
        is_optional = configuration.get("authorization_response_iss_parameter_supported") is not True
        if fields.get("iss", self._issuer.url if is_optional else "") != self._issuer.url:
            raise SignInError(f"The response is not that of {self.host}; try again.", next=attempt.next)
        code = MaskedText(fields.get("code", ""))
        if "error" in fields or not _PRINTABLE.fullmatch(code):
            reason = f"{fields.get('error', 'no code')} {fields.get('error_description', '')}".strip()
            message = f"{self.host} did not sign you in: {shortened(one_line(reason), _MAX_REASON)}"
            raise SignInError(message, next=attempt.next)
        try:
            return await self._exchange(code, attempt), attempt.next
        except TokenError:
            message = f"The response of {self.host} does not belong to this sign-in; try again."
            raise SignInError(message, next=attempt.next) from None
        except LanceNamespaceError as e:
            log.warning("gateway: sign-in by oidc_client_id %r: %s", self._client_id, e)
            is_down = isinstance(e, ServiceUnavailableError)
            problem = "cannot be reached" if is_down else "refused to give the gateway a token"
            message = f"{self.host} {problem}; try again. The log of the gateway has the reason."
            raise SignInError(message, 503 if is_down else 502, attempt.next) from None

    async def _exchange(self, code: MaskedText, attempt: _Attempt) -> MaskedText:
        """Returns the access token for a code; raises TokenError, InvalidInputError or ServiceUnavailableError."""
        client, headers = self._authenticate()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
            **client,
        }
        response = await self._issuer.request_tokens(form, headers)
        access_token, id_token = response.get("access_token"), response.get("id_token")
        if id_token is not None:
            claims = await self._issuer.claims(str(id_token), self._client_id)
            nonce = str(claims.get("nonce")).encode(errors="replace")
            if (
                not hmac.compare_digest(nonce, attempt.nonce.encode())
                or claims.get("azp", self._client_id) != self._client_id
            ):
                raise TokenError("wrong")
        return MaskedText(access_token if isinstance(access_token, str) else "")

    def _authenticate(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Returns the fields of a form, and the headers, by which the token endpoint knows the client."""
        if self._secret is None:
            return {"client_id": self._client_id}, {}
        secret = self._secret.value(now=True)
        methods = self._issuer.configuration.get("token_endpoint_auth_methods_supported")
        if isinstance(methods, list) and "client_secret_post" in methods and "client_secret_basic" not in methods:
            return {"client_id": self._client_id, "client_secret": secret}, {}
        pair = f"{quote_plus(self._client_id)}:{quote_plus(secret)}"
        return {}, {"Authorization": MaskedText(f"Basic {base64.b64encode(pair.encode()).decode()}")}
