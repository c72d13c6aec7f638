"""Tokens of an OpenID Connect issuer: JWTs are verified with its keys, and rules give rights by their claims.

Specs: OpenID Connect Discovery 1.0; RFC 7515, 7517 and 7519; RFC 8725 for what is refused.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import httpx
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.errors import one_line, shortened
from lance_ns_async.gateway.rights import Principal
from lance_ns_async.gateway.wire import is_loopback
from lance_ns_async.transports.http.transport import encode_form
from lance_ns_async.transports.http.wire import AiohttpWire, environment_proxy

if TYPE_CHECKING:
    from jwt import PyJWK

log: logging.Logger = logging.getLogger(__name__)

MAX_TOKEN = 16 << 10  # Maximum characters of a token.

_ALGORITHMS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
"""The algorithm for each type and curve of keys; the algorithm in a token must be that of its key."""

_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES = ("jwt", "at+jwt")  # Values of the header `typ`; others are for example tokens of a sign-out.
_UNSUPPORTED = {"b64", "crit", "cty", "enc", "zip"}  # Headers of tokens that are nested, encrypted or extended.
_TIMES = ("exp", "nbf", "iat")
_SUBJECT = re.compile(r"[!-~]{1,255}")  # OpenID Connect allows 255 ASCII characters; spaces would confuse logs.
_ERROR = re.compile(r"[a-z_]{1,64}")  # Values of `error` in RFC 6749 and its extensions.
_LEEWAY = 30  # Seconds by which the clocks of the issuer and of this machine may differ.

_MAX_AGE = 300.0  # Seconds after which the keys are read again, so that removed keys are no longer accepted.
_PAUSE = 10.0  # Minimum seconds between two reads because of tokens with unknown keys.
_PATIENCE = 5.0  # Maximum seconds for each document of the issuer.
_MAX_DOCUMENT = 256 << 10
_MAX_KEYS = 100
_MIN_RSA_BITS, _MAX_RSA_BITS = 2048, 8192  # The time of a verification grows with the size.
_MAX_VERIFIED = 1_000  # Maximum number of verified tokens to remember.
_QUIET = 60.0  # Seconds without a further warning of the same kind.
_MAX_REASON, _MAX_VALUE = 300, 80  # Maximum characters of a reason in the log, and of a value in it.


class TokenError(Exception):
    """A token that is not accepted; the message, `wrong` or `expired`, is all that its sender may know."""


class _RefusedError(ValueError):
    """A token that is refused for a reason of our own; the message, with its values, is for the log."""

    def __init__(self, message: str, *values: object) -> None:
        super().__init__(message.format(*map(_brief, values)))
        self.kind = message


@dataclass(frozen=True, slots=True)
class Rule:
    """Gives rights to tokens by their claims."""

    claims: Mapping[str, Any]
    """Each claim must be equal to its value here, or be a list that contains it; a mapping is for a claim's fields."""
    rights: Principal


@dataclass(frozen=True, slots=True)
class Verified:
    """A token that was verified, for as long as the keys and the rules are the same objects."""

    name: str
    principal: Principal | None  # None if no rule matches.
    until: float
    keys: object
    rules: object


class Issuer:
    """The keys of an issuer, which are renewed while its context is open, and the tokens verified with them."""

    def __init__(self, url: str, audience: str, endpoints: Sequence[str] = ()) -> None:
        """Makes no call yet.

        Args:
            url: The issuer, exactly as its tokens name it.
            audience: What tokens must be for.
            endpoints: The names of the addresses, beside that of the keys, that its configuration must have.
        """
        try:
            import cryptography  # noqa: F401 - PyJWT needs it for public keys, and can be installed without it
            import jwt
        except ImportError as e:
            raise InvalidInputError(f"oidc_issuer needs: pip install 'lance-ns-async[oidc]' ({e})") from e
        if not audience:
            raise InvalidInputError("audience: must not be empty")
        self._jwt = jwt
        self.url: str = _check_url(url, "oidc_issuer")
        self.audience: str = audience
        self.configuration: Mapping[str, Any] = {}
        """Its discovery document, whose `endpoints` were checked."""
        self._endpoints = endpoints
        self._keys: Mapping[str, PyJWK] = {}
        self._content = b""  # The document of the keys.
        self._verified: OrderedDict[bytes, Verified] = OrderedDict()
        self._reading: asyncio.Task[None] | None = None  # A read in progress, after the first one.
        self._warned: dict[str, float] = {}  # When a token was last refused with a warning, by the kind of the reason.

    async def __aenter__(self) -> Self:
        """Reads the keys. Raises InvalidInputError or ServiceUnavailableError if this is impossible."""
        self._wire = AiohttpWire(connect_timeout=_PATIENCE, tls=None, proxy=environment_proxy, max_bytes=_MAX_DOCUMENT)
        self._read_at = monotonic()
        try:
            await self._read()
        except BaseException:
            await self._wire.aclose()
            raise
        # It lives as long as this object, which is no block of code with a group.
        self._renewal = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = {self._renewal, self._reading or self._renewal}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self._wire.aclose()

    async def verify(self, token: str, rules: Sequence[Rule]) -> Verified:
        """Returns whose token it is; raises TokenError if it is not accepted.

        Cost: none, or two remote calls for a token with an unknown key, at most every ten seconds.
        """
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._verified.pop(digest, None)
        if known is None or known.keys is not self._keys or known.rules is not rules or known.until <= time():
            known = await self._verify(token, rules)
        self._verified[digest] = known
        if len(self._verified) > _MAX_VERIFIED:
            self._verified.popitem(last=False)
        return known

    async def _verify(self, token: str, rules: Sequence[Rule]) -> Verified:
        claims = await self.claims(token, self.audience)
        name = f"oidc:{claims['sub']}"
        return Verified(name, _grant(rules, claims, name), claims["exp"] + _LEEWAY, self._keys, rules)

    async def claims(self, token: str, audience: str) -> Mapping[str, Any]:
        """Returns the claims of a token for an audience; raises TokenError if it is not accepted."""
        try:
            if len(token) > MAX_TOKEN or not _JWT.fullmatch(token):
                raise _RefusedError(f"it is encrypted, has more than {MAX_TOKEN} characters or is no JWT at all")
            head, body, _ = token.split(".")
            key = await self._key(_parse(head), body)
            self._jwt.decode(
                token,
                key,
                algorithms=[*_ALGORITHMS.values()],
                audience=audience,
                issuer=self.url,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            claims = _parse(body)  # Also refuses repeated names, of which PyJWT takes the last one.
            if not all(type(claims.get(name, 0)) in (int, float) for name in _TIMES):
                raise _RefusedError("exp, nbf and iat must be numbers")
            if not _SUBJECT.fullmatch(claims["sub"]):
                raise _RefusedError("sub must be printable ASCII without spaces, of at most 255 characters")
        except (self._jwt.PyJWTError, ValueError, RecursionError) as e:
            self._log_refusal(e, token, audience)
            raise TokenError("expired" if isinstance(e, self._jwt.ExpiredSignatureError) else "wrong") from None
        return claims

    def _log_refusal(self, error: Exception, token: str, audience: str) -> None:
        """Logs why a token is refused: as a warning once a minute for each kind of reason, else at the level DEBUG."""
        kind, reason = getattr(error, "kind", type(error).__name__), str(error)
        match error:
            case self._jwt.MissingRequiredClaimError():
                kind = reason = f"it has no {error.claim}"
            case self._jwt.InvalidAudienceError():
                reason = f"aud is {self._brief_claim(token, 'aud')}, not {audience!r}"
            case self._jwt.InvalidIssuerError():
                reason = f"iss is {self._brief_claim(token, 'iss')}, not {self.url!r}"
            case self._jwt.ExpiredSignatureError():
                reason = f"exp is {self._brief_claim(token, 'exp')}, and the time is {time():.0f}"
        is_new = monotonic() - self._warned.get(kind, -_QUIET) >= _QUIET
        if is_new:
            self._warned[kind] = monotonic()
        level = logging.WARNING if is_new else logging.DEBUG
        log.log(level, "gateway: a JWT is refused: %s", shortened(one_line(reason), _MAX_REASON))

    def _brief_claim(self, token: str, name: str) -> str:
        """Returns a claim of a token whose signature was verified."""
        return _brief(self._jwt.decode(token, options={"verify_signature": False}).get(name))

    async def request_tokens(self, form: Mapping[str, str], headers: Mapping[str, str]) -> Mapping[str, Any]:
        """Returns the response of the token endpoint; raises InvalidInputError or ServiceUnavailableError.

        Cost: one remote call.
        """
        url = self.configuration["token_endpoint"]
        content, content_type = encode_form(form)
        headers = {**headers, "Content-Type": content_type, "Accept": "application/json"}
        response = await self._send("POST", url, headers=headers, content=content)
        if response.status_code in (400, 401):
            # Descriptions may repeat what was sent.
            code = str(self._object(response.content).get("error"))
            raise self._error(f"{url} has the error {code if _ERROR.fullmatch(code) else 'in another form'}")
        return self._object(self._content_of(response, url))

    async def _key(self, header: Mapping[str, Any], body: str) -> PyJWK:
        """Returns the key that a header names; raises ValueError if there is none, or if the header is not allowed."""
        kid, kind = header.get("kid"), str(header.get("typ", "JWT")).lower().removeprefix("application/")
        if unsupported := header.keys() & _UNSUPPORTED:
            raise _RefusedError("its header has {}, which is not supported", min(unsupported))
        if kind not in _TYPES:
            raise _RefusedError("typ is {}, not 'JWT' or 'at+jwt'", kind)
        if not isinstance(kid, str):
            raise _RefusedError("its header has no kid")
        if (algorithm := header.get("alg")) not in _ALGORITHMS.values():
            raise _RefusedError(f"alg is {{}}, not one of {', '.join(_ALGORITHMS.values())}", algorithm)
        if kid not in self._keys:
            await self._read_again(_PAUSE)
        if kid not in self._keys:
            # Most often, it is the token of another issuer.
            issuer = _parse(body).get("iss")
            raise _RefusedError("its kid {} is no key of {}; its iss is {}", kid, self.url, issuer)
        return self._keys[kid]

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_MAX_AGE)
            await self._read_again(0)

    async def _read_again(self, pause: float) -> None:
        """Reads the keys, unless this was begun less than `pause` seconds ago; waits for a read in progress."""
        if self._reading is None and monotonic() - self._read_at >= pause:
            self._read_at = monotonic()
            # A task of its own, because clients that leave would cancel it.
            self._reading = asyncio.create_task(self._try_read())
        if self._reading is not None:
            await asyncio.wait({self._reading})

    async def _try_read(self) -> None:
        try:
            await self._read()
        except LanceNamespaceError as e:
            log.warning("gateway: %s; the last keys stay in use", e)
        finally:
            self._reading = None

    async def _read(self) -> None:
        """Reads the addresses and the keys of the issuer."""
        discovery = self._object(await self._get(f"{self.url.rstrip('/')}/.well-known/openid-configuration"))
        if (named := discovery.get("issuer")) != self.url:
            raise self._error(f"its configuration is that of {named!r}; use the issuer exactly as it is named there")
        for name in ("jwks_uri", *self._endpoints):
            if discovery.get(name) is None:
                raise self._error(f"its configuration has no {name}{', so omit oidc_client_id' * (name != 'jwks_uri')}")
            _check_url(discovery[name], f"oidc_issuer={self.url!r}: {name}")
        content = await self._get(discovery["jwks_uri"])
        self.configuration = discovery
        if content != self._content:
            self._keys = self._parse_keys(content)
            self._content = content

    async def _get(self, url: str) -> bytes:
        return self._content_of(await self._send("GET", url), url)

    async def _send(self, method: str, url: str, **content: Any) -> httpx.Response:
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._wire.handle_async_request(httpx.Request(method, url, **content))
        except (httpx.RequestError, httpx.InvalidURL, TimeoutError) as e:
            reason = one_line(str(e)) or f"no response within {_PATIENCE:g} s"
            remedy = "is the URL right, and the issuer running?"
            raise ServiceUnavailableError(f"oidc_issuer={self.url!r}: {url}: {reason}; {remedy}") from e

    def _content_of(self, response: httpx.Response, url: str) -> bytes:
        if response.status_code != 200:
            remedy = "; is the name of the realm in the URL right?" if response.status_code == 404 else ""
            raise self._error(f"{url} has the status {response.status_code}{remedy}")
        return response.content

    def _parse_keys(self, content: bytes) -> Mapping[str, PyJWK]:
        entries = self._object(content).get("keys")
        if not isinstance(entries, list) or len(entries) > _MAX_KEYS:
            raise self._error(f"its keys must be a list of at most {_MAX_KEYS}")
        keys: dict[str, PyJWK] = {}
        for entry in entries:
            # Others are for encryption, or for other algorithms.
            if isinstance(entry, dict) and (key := self._parse_key(entry)) is not None:
                keys.setdefault(entry["kid"], key)
        if not keys:
            raise self._error(f"it has no key with an id for {', '.join(_ALGORITHMS.values())}")
        return keys

    def _parse_key(self, entry: Mapping[str, Any]) -> PyJWK | None:
        """Returns a public key for signatures; None for any other one."""
        kind, curve = entry.get("kty"), entry.get("crv")
        algorithm = _ALGORITHMS.get((kind, curve)) if isinstance(kind, str) and isinstance(curve, str | None) else None
        usable = entry.get("use", "sig") == "sig" and entry.get("alg", algorithm) == algorithm
        if algorithm is None or not usable or not isinstance(entry.get("kid"), str):
            return None
        public = {name: entry[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in entry}
        try:
            key = self._jwt.PyJWK(public, algorithm)
        except (self._jwt.PyJWTError, ValueError, TypeError) as e:
            log.warning("gateway: oidc_issuer=%r: a key is malformed (%s)", self.url, type(e).__name__)
            return None
        return key if kind != "RSA" or _MIN_RSA_BITS <= key.key.key_size <= _MAX_RSA_BITS else None

    def _object(self, content: bytes) -> dict[str, Any]:
        try:
            return _unique_object(content)
        except (ValueError, RecursionError):
            raise self._error("its response is no JSON object") from None

    def _error(self, problem: str) -> InvalidInputError:
        return InvalidInputError(f"oidc_issuer={self.url!r}: {shortened(one_line(problem), 500)}")


def _check_url(url: object, label: str) -> str:
    """Returns a URL that is protected by TLS or leads to this machine; raises InvalidInputError for any other."""
    text = url if isinstance(url, str) and re.fullmatch("[!-~]*", url) and not set(url) & set("@?#") else ""
    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:  # also for a port that is no number, or too large
        host = None
    if host and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
        return text
    message = "must be an https:// URL without user, query and fragment; http:// is for this machine only"
    raise InvalidInputError(f"{label}: {message}")


def _grant(rules: Sequence[Rule], claims: Mapping[str, Any], name: str) -> Principal | None:
    """Returns the rights of the first rule that matches; others with the same rights add their tables."""
    matching = [rule.rights for rule in rules if _matches(rule.claims, claims)]
    if not matching:
        return None
    first = matching[0]
    same = [it for it in matching if (it.right, it.credentials) == (first.right, first.credentials)]
    only = tuple(pattern for it in same for pattern in it.only) if all(it.only for it in same) else ()
    return replace(first, name=name, only=only)


def _matches(expected: Any, actual: Any) -> bool:
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(_matches(it, actual.get(name)) for name, it in expected.items())
    values = actual if isinstance(actual, list) else [actual]
    # In Python, True is equal to 1.
    return any(type(it) is type(expected) and it == expected for it in values)


def _brief(value: object) -> str:
    return shortened(repr(value), _MAX_VALUE)


def _parse(part: str) -> dict[str, Any]:
    """Returns the object in a part of a token; raises ValueError or RecursionError."""
    return _unique_object(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def _unique_object(content: bytes) -> dict[str, Any]:
    """Returns the JSON object in a text, whose names must be unique; raises ValueError or RecursionError."""
    value = json.loads(content, object_pairs_hook=_unique, parse_constant=_refuse)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name is repeated")
    return fields


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")
