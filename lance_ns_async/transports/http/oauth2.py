"""Authentication of HTTP catalogs: the properties, and bearer tokens by the grants of OAuth2.

Specs: RFC 6749, sections 4.4 and 6, and RFC 8693 for the exchange of tokens. The names of the parameters are those of
Iceberg's own clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Self

import httpx
import lance_namespace.errors as err
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from lance_ns_async.calls.caller import Caller
from lance_ns_async.errors import HTTP_ERRORS, Code, ErrorTable, failure_of, with_failure
from lance_ns_async.masked import MaskedBytes, MaskedText
from lance_ns_async.model import NamespaceId
from lance_ns_async.settings import BearerToken, HttpSettings, Seconds, TokenFunction, Url
from lance_ns_async.storage.watched_file import WatchedFile
from lance_ns_async.transports.http.token_sources import (
    LIFETIME,
    FileTokens,
    RenewedTokens,
    Token,
    Tokens,
    command_tokens,
    function_tokens,
    parse_command,
    parse_secret,
    parse_token,
)
from lance_ns_async.transports.http.transport import HttpTransport, ReadError, encode_form

OAUTH2_ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    # RFC 6749 allows 400 for an unknown client; some servers respond with 406.
    400: err.UnauthenticatedError,
    405: err.InvalidInputError,
    406: err.UnauthenticatedError,
}

_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"
ACCESS_TOKEN = f"{_TOKEN_TYPE}access_token"
"""The type of ordinary bearer tokens."""

_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_TOKEN_TYPES = ("access_token", "id_token", "jwt", "refresh_token", "saml1", "saml2")


def _token_type(value: str) -> str:
    if value in _TOKEN_TYPES:
        return f"{_TOKEN_TYPE}{value}"
    if ":" not in value:
        raise ValueError(f"not a type of token; write one of {', '.join(_TOKEN_TYPES)}, or a URI")
    return value


def _function(value: object) -> object:
    if not callable(value):
        raise ValueError("it is a Python callable that returns a token; a token itself is the property auth_token")
    return value


FilePath = Annotated[str, Field(min_length=1)]
TokenType = Annotated[str, AfterValidator(_token_type)]
"""The URI of a type of tokens; the last part suffices for those of RFC 8693, such as `id_token`."""


class OAuth2Settings(HttpSettings):
    """Additional settings of backends that get bearer tokens themselves.

    A property `urn:ietf:params:oauth:token-type:id_token`, as Iceberg's clients have it, is a `subject_token` and its
    type.
    """

    credential: SecretStr | None = None
    """`client_id:client_secret` for OAuth2 client credentials; without a colon, only the secret."""
    client_secret_file: FilePath | None = None
    """A file with a `credential`, or only its secret if there is a `client_id`; read again for each token."""
    client_id: str | None = Field(default=None, min_length=1)
    """The id of the client whose secret is in `client_secret_file`."""
    scope: str = "catalog"
    """The requested scope; empty for none."""
    oauth2_server_uri: Url | None = None
    """The token endpoint; None means that of the catalog."""
    audience: str | None = Field(default=None, min_length=1)
    """The service that the token is for, as some identity providers require it."""
    resource: str | None = Field(default=None, min_length=1)
    """The address of the service that the token is for (RFC 8707)."""
    subject_token: BearerToken | None = None
    """A token that is exchanged for one of the catalog (RFC 8693)."""
    subject_token_file: FilePath | None = None
    """A file with a `subject_token`; read again for each token."""
    subject_token_type: TokenType = ACCESS_TOKEN
    requested_token_type: TokenType | None = None
    auth_token_file: FilePath | None = None
    """A file with a bearer token, which another program replaces; read again when it changes."""
    auth_command: Annotated[tuple[str, ...], BeforeValidator(parse_command)] | None = Field(
        default=None, repr=False, exclude=True
    )
    """A command that prints a token, or JSON with a token and its expiry; it is run without a shell."""
    auth_command_timeout: Seconds = Field(default=30.0, gt=0)
    token: Annotated[TokenFunction, BeforeValidator(_function)] | None = Field(default=None, repr=False, exclude=True)
    """A Python callable that returns a token; a string is rejected."""

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        names = self._set(*_WAYS)
        is_pair = len(names) == 2 and names[0] in _CLIENTS and names[1] in _SUBJECTS
        if len(names) > 1 and not is_pair:
            raise ValueError(f"{' and '.join(names)}: set one of them: a token, or a way to get one")
        for name, ways in _PARAMETERS.items():
            is_set = getattr(self, name) != type(self).model_fields[name].default
            if is_set and not self._set(*ways):
                raise ValueError(f"{name}: give {' or '.join(ways[:2])} with it")
        return self

    def _set(self, *names: str) -> list[str]:
        return [name for name in names if getattr(self, name) is not None]

    @classmethod
    def _gather(cls, properties: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
        plain: dict[str, str] = {}
        types: list[str] = []
        for key, value in properties.items():
            if (type := key.removeprefix(f"{cls.backend}.")).startswith(_TOKEN_TYPE):
                types.append(key)
                plain |= {"subject_token": value, "subject_token_type": type}
            else:
                plain[key] = value
        values, keys, problems = super()._gather(plain)
        if len(types) + len([key for key in properties if key.endswith(("subject_token", "subject-token"))]) > 1:
            problems.append(f"{types[0] if types else 'subject_token'}: give one token to exchange")
        return values, keys, problems

    def client(self) -> tuple[str, str]:
        """Returns the client's id and its secret; what is empty may be in `client_secret_file`."""
        return split_credential(self.credential.get_secret_value()) if self.credential else (self.client_id or "", "")

    def parse_client(self, content: bytes) -> MaskedText:
        """Returns what is in `client_secret_file`; raises ValueError if the catalog cannot use it."""
        return parse_secret(content)

    def grants(self) -> list[str]:
        """Returns the properties that are sent to a token endpoint: that of the client before that of a subject."""
        return self._set(*_CLIENTS, *_SUBJECTS)

    def exchanges(self) -> bool:
        """Returns whether a token of another issuer is exchanged."""
        return bool(self._set(*_SUBJECTS))


def split_credential(credential: str) -> tuple[str, str]:
    """Returns the client's id and its secret; without a colon, the id is empty."""
    id, colon, secret = credential.partition(":")
    return (id, secret) if colon else ("", credential)


_CLIENTS = ("credential", "client_secret_file")
_SUBJECTS = ("subject_token", "subject_token_file")
_WAYS = ("auth_token", "auth_token_file", *_CLIENTS, *_SUBJECTS, "auth_command", "token")
"""Properties that each suffice to sign in."""

_PARAMETERS = {  # Properties that have no effect without one of others; the first two are in messages.
    "audience": ("credential", "subject_token", *_CLIENTS, *_SUBJECTS),
    "resource": ("credential", "subject_token", *_CLIENTS, *_SUBJECTS),
    "client_id": ("client_secret_file",),
    "subject_token_type": _SUBJECTS,
    "requested_token_type": _SUBJECTS,
    "auth_command_timeout": ("auth_command",),
}


def open_tokens(
    settings: OAuth2Settings,
    caller: Caller,
    *,
    uri: str,
    headers: Mapping[str, str] | None = None,
    errors: ErrorTable = OAUTH2_ERRORS,
    lifetime: float = LIFETIME,
    explain_error: ReadError | None = None,
) -> Callable[[httpx.AsyncBaseTransport], Tokens | None]:
    """Returns a function that creates the source of tokens for a set of connections. It fetches no token yet.

    The source is None if the settings contain no way to get tokens.

    Args:
        uri: The URL of the catalog's own token endpoint, which `oauth2_server_uri` replaces.
        headers: Headers of requests to the catalog's own token endpoint, in addition to the `header.*` properties,
            which a gateway in front of the catalog may require.
        errors: The errors of token requests.
        lifetime: Lifetime in seconds of a token whose response contains none.
        explain_error: Reads the codes and the message of an error; None means the function `read_error`.
    """
    if (command := settings.auth_command) is not None:
        return lambda wire: command_tokens(caller, command, settings.auth_command_timeout)
    if (function := settings.token) is not None:
        return lambda wire: function_tokens(caller, function)
    if (file := settings.auth_token_file) is not None:
        return lambda wire: FileTokens(file)
    if not settings.grants():
        return lambda wire: None
    own = {name.lower(): value.get_secret_value() for name, value in settings.header.items()}
    is_foreign = settings.oauth2_server_uri is not None
    return partial(
        grant_tokens,
        settings=settings,
        caller=caller,
        uri=settings.oauth2_server_uri or uri,
        # Headers for the catalog may contain secrets, which another server must not get.
        headers={} if is_foreign else {**(headers or {}), **own},
        errors=errors,
        lifetime=lifetime,
        explain_error=explain_error,
        address="oauth2_server_uri" if is_foreign else "the endpoint",
        advice=None if is_foreign else "is the endpoint right, or has oauth2_server_uri to name the token endpoint?",
    )


def grant_tokens(
    wire: httpx.AsyncBaseTransport,
    *,
    settings: OAuth2Settings,
    caller: Caller,
    uri: str,
    headers: Mapping[str, str] | None = None,
    errors: ErrorTable = OAUTH2_ERRORS,
    lifetime: float = LIFETIME,
    explain_error: ReadError | None = None,
    address: str = "oauth2_server_uri",
    advice: str | None = None,
) -> RenewedTokens:
    """Returns the tokens of the grants in the settings; fetches none yet. See `open_tokens` for the arguments.

    Args:
        uri: The URL of the token endpoint.
        address: The property that `uri` comes from, for messages.
        advice: The end of the error message if the server is not a token endpoint.
    """
    secrets: list[str] = []
    http = HttpTransport(
        wire,
        # The fetch has its own slots, so that calls that wait for a token cannot block it.
        caller.beside(errors),
        base=uri,
        headers={"accept": "application/json", **(headers or {})},
        read_error=explain_error or read_error,
        confidential=True,
        secrets=secrets,
        address=address,
        advice=advice,
        sign_in_advice=f"is {settings.grants()[-1]} right?",
    )
    return RenewedTokens(_Grants(http, settings, secrets, lifetime).fetch)


class _Grants:
    """The requests for tokens: with the refresh token of the last response, or else as the settings say."""

    def __init__(self, http: HttpTransport, settings: OAuth2Settings, secrets: list[str], lifetime: float) -> None:
        self._http = http
        self._settings = settings
        self._secrets = secrets
        self._lifetime = lifetime
        self._refresh_token: str | None = None
        self._client_file = _watch("client_secret_file", settings.client_secret_file, settings.parse_client)
        self._subject_file = _watch("subject_token_file", settings.subject_token_file, parse_token)

    async def fetch(self) -> Token:
        """Returns a new token.

        A refresh token that the server rejects is discarded; a server that is unavailable has not rejected it.
        """
        refusal = ""
        if self._refresh_token is not None:
            try:
                return await self._request()
            except (err.ServiceUnavailableError, err.ThrottlingError):
                raise
            except err.LanceNamespaceError as e:
                self._refresh_token = None
                refusal = f"; before, the refresh token was rejected ({e})"
        try:
            return await self._request()
        except err.UnauthenticatedError as e:
            if not self._settings.exchanges():
                raise
            name = self._settings.grants()[-1]
            error = err.UnauthenticatedError(f"{e}; is {name} still valid? replace it with a new one{refusal}")
            failure = failure_of(e)
            raise (error if failure is None else with_failure(error, failure)) from e

    async def _request(self) -> Token:
        result = await self._http.request(
            "POST",
            "",
            content=self._form(),
            subject=NamespaceId(),
            operation="fetch_token",
            decode=partial(token, lifetime=self._lifetime),
            safe=True,
        )
        if result.refresh_token is not None:
            # A response without one means that the last one stays valid.
            self._refresh_token = result.refresh_token
            self._redact(result.refresh_token)
        return result

    def _form(self) -> tuple[MaskedBytes, str]:
        # No variables of `_request`, which an error collector would record.
        targets = {"audience": self._settings.audience, "resource": self._settings.resource}
        form = {**self._grant(), **self._client(), **targets}
        self._redact(*(form.get(key) for key in ("client_secret", "subject_token")))
        # RFC 6749 treats an empty parameter like none.
        return encode_form({key: value for key, value in form.items() if value})

    def _grant(self) -> Mapping[str, str | None]:
        settings = self._settings
        if self._refresh_token is not None:
            return {"grant_type": "refresh_token", "refresh_token": self._refresh_token}
        if not settings.exchanges():
            return {"grant_type": "client_credentials", "scope": settings.scope}
        return {
            "grant_type": _TOKEN_EXCHANGE,
            "subject_token": _read(self._subject_file, settings.subject_token),
            "subject_token_type": settings.subject_token_type,
            "requested_token_type": settings.requested_token_type,
            "scope": settings.scope,
        }

    def _client(self) -> Mapping[str, str]:
        credential = MaskedText(_read(self._client_file, self._settings.credential))
        client_id = self._settings.client_id
        id, secret = (client_id, credential) if client_id else split_credential(credential)
        return {"client_id": id, "client_secret": secret}

    def _redact(self, *secrets: str | None) -> None:
        """Redacts the secrets in messages, and the last ones before them, which the server may quote."""
        others = [secret for secret in self._secrets if secret not in secrets]
        self._secrets[:] = [*others, *filter(None, secrets)][-_REDACTED:]


_REDACTED = 6  # Number of secrets that are redacted: two of a client, two of a subject, two refresh tokens.


def _watch(name: str, path: str | None, parse: Callable[[bytes], MaskedText]) -> WatchedFile[MaskedText] | None:
    return None if path is None else WatchedFile(name, path, parse)


def _read(file: WatchedFile[MaskedText] | None, value: SecretStr | None) -> str:
    if file is not None:
        return file.value(now=True)
    return value.get_secret_value() if value else ""


def token(body: Any, lifetime: float = LIFETIME) -> Token:
    """Returns the token in a response; `lifetime` applies if the response contains none."""
    value = body["access_token"]
    if not (value.isascii() and value.isprintable()):
        raise ValueError("access_token is not a text that a header can contain")
    refresh_token = body.get("refresh_token")
    if not isinstance(refresh_token, str | None):
        raise ValueError("refresh_token is not a text")
    try:
        return Token(value, float(body.get("expires_in") or lifetime), refresh_token or None)
    except (TypeError, ValueError):
        # The value is not quoted, because it comes from the response that contains the token.
        raise ValueError("expires_in is not a number") from None


def read_error(body: Any) -> tuple[tuple[Code, ...], str]:
    """Returns codes and message of an error in OAuth2's format, or in the Iceberg REST format that catalogs use."""
    error = body["error"]
    if isinstance(error, str):
        kind, detail = None, body.get("error_description")
        message = f"{error}: {detail}" if detail else error
    else:
        kind, detail = error.get("type"), error["message"]
        message = detail
        if kind == "MissingOrInvalidRealm":
            # Polaris as an Iceberg REST catalog.
            message = f"{detail}; is the property header.Polaris-Realm right?"
    if not (isinstance(detail, str | None) and isinstance(message, str)):
        raise TypeError("a message is a text")
    return (kind,) if kind else (), message
