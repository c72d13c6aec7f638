"""An Apache Polaris server in memory: generic tables, namespaces, management of catalogs, and its own OAuth2. It
follows an Apache Polaris 1.4.1 server; options give the behaviour of other versions and of gateways in front of
them."""

from __future__ import annotations

import base64
import gzip
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl
from uuid import uuid4

from multidict import CIMultiDict, CIMultiDictProxy

from tests.fakes.http import FakeServer, Refusal
from tests.fakes.polaris import catalog as catalogs
from tests.fakes.polaris.routes import VENDING, Call, Done, PolarisRoutes, parameters, segments
from tests.fakes.server import Answer, Received
from tests.fakes.sigv4 import Signatures

LANCE = {"table_type": "lance"}  # The property by which other tools recognize a Lance table
DEFAULT_REALM = "POLARIS"  # The default realm of a server
IN_NAMESPACE = "in the namespace"  # Represents the location of the namespace followed by the table's name


class FakePolaris(FakeServer):
    """An Apache Polaris server; its content survives a restart, its tokens do not."""

    def __init__(
        self,
        *,
        paging: bool = False,
        table_page: int | None = None,
        credential: tuple[str, str] | None = ("root", "s3cr3t"),
        powerless: Mapping[str, str] | None = None,
        token_lifetime: int = 3600,
        realm: str | None = None,
        strict_names: catalogs.Strictness | None = None,
        vends: Sequence[catalogs.Json] | None = None,
        refuses_delegation: bool = False,
        signatures: Signatures | None = None,
        base: str = "file:///data",
    ) -> None:
        """Creates a server. Without a `credential`, no token is needed; `powerless` are ids and secrets of principals
        without grants. `paging` pages the listings of namespaces, `table_page` those of tables, which no Polaris does.
        A `realm` is required in each request. `vends` are `storage-access-configs` for requests with the header;
        `refuses_delegation` answers these with an error. Catalogs are below `base`. With `signatures`, a gateway of AWS
        in front of it checks all requests except those for tokens."""
        super().__init__()
        clients = {**dict([credential] if credential else []), **(powerless or {})}
        self.tokens = PolarisTokens(clients, token_lifetime)
        self._catalogs = catalogs.PolarisCatalogs(strict_names)
        self._routes = PolarisRoutes(self._catalogs, paging=paging, table_page=table_page, vends=vends)
        self._credential = credential
        self._powerless = frozenset(powerless or {})
        self._realm = realm
        self._refuses_delegation = refuses_delegation
        self._base = base
        self.signatures = signatures

    @property
    def properties(self) -> dict[str, str]:
        properties = {"endpoint": self.endpoint}
        if self._credential is not None:
            properties["credential"] = ":".join(self._credential)
        if self._realm is not None:
            properties["realm"] = self._realm
        return properties

    @property
    def token_requests(self) -> int:
        return self.tokens.requests

    def token(self, principal: str | None = None) -> str:
        """Returns a token without a request, for the principal with all rights or another."""
        with self._lock:
            return self.tokens.grant(principal or (self._credential or ("anyone", ""))[0])

    def expire_tokens(self) -> None:
        with self._lock:
            self.tokens.forget()

    def advance(self, seconds: float) -> None:
        with self._lock:
            self.tokens.advance(seconds)

    def stop(self) -> None:
        super().stop()
        self.expire_tokens()

    def add_catalog(self, name: str, *, location: str | None = None) -> None:
        base = location or f"{self._base}/{name}"
        storage = {"storageType": "FILE", "allowedLocations": [base]}
        body = {"name": name, "properties": {"default-base-location": base}, "storageConfigInfo": storage}
        with self._lock:
            if name not in self._catalogs.catalogs:
                self._catalogs.create(body)

    def add_namespace(self, catalog: str, levels: Sequence[str], properties: Mapping[str, str] | None = None) -> None:
        """Adds a namespace of any name, with its missing catalog and parents."""
        with self._lock:
            self._planted(catalog, levels).properties.update(properties or {})

    def add_table(
        self,
        catalog: str,
        levels: Sequence[str],
        name: str,
        *,
        format: str = "lance",
        base_location: str | None = IN_NAMESPACE,
        properties: Mapping[str, str | None] = LANCE,
        doc: str | None = None,
    ) -> str | None:
        """Adds a generic table of any kind and its namespace; returns its location."""
        with self._lock:
            space = self._planted(catalog, levels)
            location = f"{space.location}{name}" if base_location == IN_NAMESPACE else base_location
            body = {"format": format, "base-location": location, "doc": doc, "properties": dict(properties)}
            self._catalogs.plant_table(space, name, body)
        return location

    def add_iceberg_table(self, catalog: str, levels: Sequence[str], name: str) -> None:
        """Adds an Iceberg table, which uses the name and is not listed among generic tables."""
        with self._lock:
            self._planted(catalog, levels).iceberg.add(name)

    def error(self, status: int) -> Answer:
        """Returns an error in Polaris' form; errors of a gateway in front of it have the gateway's form."""
        headers = {"X-Request-ID": str(uuid4())}
        if status in (401, 429):
            return catalogs.Bare(status).answer().with_headers(headers)
        if status not in catalogs.ERROR_TYPES:
            return super().error(status)
        return Refusal(status, catalogs.ERROR_TYPES[status], "on demand").answer().with_headers(headers)

    def handle(self, request: Received) -> Answer:
        if self.signatures is not None and not request.path.endswith("/oauth/tokens"):
            if (refusal := self.signatures.refusal(request)) is not None:
                return refusal
            request = _with_original_authorization(request)
        try:
            answer = _written(request, self._done(request))
        except OAuthError as error:
            answer = _written(request, Done(error.status, catalogs.compact(error.body)))
        except (Refusal, catalogs.Bare) as error:
            answer = error.answer()
        return answer.with_headers({"X-Request-ID": request.headers.get("X-Request-ID") or str(uuid4())})

    def _done(self, request: Received) -> Done:
        path, _, query = request.path.partition("?")
        self._routes.now = self._carried_out
        steps = segments(path)
        # A missing realm means the default one; a given one must exist, even if it is empty.
        default = DEFAULT_REALM if self._realm is None else None
        if request.headers.get("Polaris-Realm", default) != (self._realm or DEFAULT_REALM):
            raise Refusal(404, "MissingOrInvalidRealm", "Missing or invalid realm")
        match steps:
            case "api", "catalog", "v1", "oauth", "tokens" if request.method == "POST":
                if request.headers.get("Content-Type", "").startswith("application/json"):
                    raise Refusal(415, catalogs.ERROR_TYPES[415], "HTTP 415 Unsupported Media Type")
                return Done(200, catalogs.compact(self.tokens.issue(request)))
            case "api", "catalog", "polaris", "v1", *rest:
                api = self._routes.tables
            case "api", "catalog", "v1", *rest:
                api = self._routes.catalog
            case "api", "management", "v1", *rest:
                api = self._routes.management
            case _:
                raise catalogs.no_route("HTTP 404 Not Found")
        call = Call(request, parameters(query), self._stranger(request))
        if self._refuses_delegation and VENDING in request.headers:
            raise catalogs.refused("Credential vending is not supported for generic tables")
        if not re.search(r"^$|application/(json|\*)|\*/\*", request.headers.get("Accept", "")):
            raise Refusal(406, catalogs.ERROR_TYPES[406], "HTTP 406 Not Acceptable")
        if "" in rest:
            raise catalogs.no_route()
        return api(call, rest)

    def _stranger(self, request: Received) -> str | None:
        if self._credential is None:
            return None
        principal = self.tokens.principal(request)
        if principal is None:
            raise catalogs.Bare(401)
        return principal if principal in self._powerless else None

    def _planted(self, catalog: str, levels: Sequence[str]) -> catalogs.Space:
        self.add_catalog(catalog)
        space = self._catalogs.catalogs[catalog].root
        for level in levels:
            space = space.children.get(level) or self._catalogs.plant_namespace(space, level, {})
        return space


def _with_original_authorization(request: Received) -> Received:
    """Returns the request as a gateway forwards it, with the client's own authorization instead of the signature."""
    own = request.headers.get("Original-Authorization")
    headers = CIMultiDict(request.headers)
    del headers["Authorization"]
    if own is not None:
        headers["Authorization"] = own
    return replace(request, headers=CIMultiDictProxy(headers))


def _written(request: Received, done: Done) -> Answer:
    """Returns the response, compressed for clients that accept it."""
    if not done.body:
        return Answer(done.status)
    if request.method == "HEAD":
        return Answer(done.status, done.body, {"Content-Type": "application/json"})
    headers = {"Content-Type": "application/json;charset=UTF-8"}
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return Answer(done.status, done.body, headers)
    packed = gzip.compress(done.body, 1, mtime=0)
    return Answer(done.status, packed, {**headers, "Content-Encoding": "gzip"})


_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
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
        self.requests = 0  # The number of requests for tokens, including refused ones
        self.scopes: list[str | None] = []  # The scope of each request for a token; None for requests without one
        self._clients = dict(clients)
        self._lifetime = lifetime
        self._skipped = 0.0
        self._good: dict[str, Grant] = {}

    def forget(self) -> None:
        self._good.clear()

    def advance(self, seconds: float) -> None:
        self._skipped += seconds

    def principal(self, request: Received) -> str | None:
        """Returns the principal of a request's bearer token; None for a missing, invalid or expired token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        grant = self._good.get(token) if scheme.lower() == "bearer" else None
        return grant.principal if grant and self._now() < grant.until else None

    def issue(self, request: Received) -> dict[str, object]:
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        self.requests += 1
        self.scopes.append(form.get("scope"))
        if "grant_type" not in form:
            raise Refusal(500, "NullPointerException", "Cannot read the grant type because it is null")
        principal = self._exchanged(form) if form.get("grant_type") == _EXCHANGE else self._known(request, form)
        return {
            "access_token": self.grant(principal),
            "token_type": "bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "expires_in": self._lifetime,
        }

    def grant(self, principal: str) -> str:
        parts = [{"alg": "RS256", "typ": "JWT"}, {"sub": principal, "iss": "polaris", "jti": secrets.token_hex(8)}]
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
