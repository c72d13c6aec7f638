"""Settings of backends, parsed and validated from string properties. All times are float seconds."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from os import PathLike, fspath
from typing import Annotated, Any, ClassVar, Protocol, Self
from urllib.parse import urlsplit

from lance_namespace.errors import InvalidInputError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ErrorDetails

from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import suggest
from lance_ns_async.masked import bearer_token

_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|w)?\s*")
_DEFAULT_POLICY = Policy()
_CLIENT = ("client_id", "client_secret", "clientid", "clientsecret", "oauth2_credential")
"""Names that users give to the two parts of `credential`."""
_MAX_NAMES = 5  # Maximum number of known properties in a message.
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def _duration(bare: str, value: object) -> object:
    match = _DURATION.fullmatch(str(value))
    if match is None:
        raise ValueError(f"not a duration; write e.g. '500ms', '10s' or '2m' (a bare number means {bare})")
    return float(match[1]) * _UNITS[match[2] or bare]


Seconds = Annotated[float, BeforeValidator(partial(_duration, "s"))]
"""A duration in seconds; the property may be `"10"`, `"10s"`, `"500ms"` or `"2m"`. A bare number means seconds."""

_SECONDS: TypeAdapter[float] = TypeAdapter(Seconds)

Millis = Annotated[float, BeforeValidator(partial(_duration, "ms"))]
"""A duration in seconds, too; a bare number in the property means milliseconds."""


def seconds(name: str, value: object) -> float:
    """Returns a duration in seconds: a text as for `Seconds`, a number of seconds, or a timedelta.

    Args:
        name: The argument, for the error.
        value: The duration.

    Raises:
        InvalidInputError: It is no duration, or negative.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, int | float):
        value = f"{value:f}"
    try:
        return _SECONDS.validate_python(value)
    except ValidationError as e:
        why = e.errors()[0]["msg"].removeprefix("Value error, ")
        raise InvalidInputError(f"{name} {value!r}: {why}") from None


def _url(value: str) -> str:
    if not is_url(value):
        raise ValueError("not a URL; write e.g. https://catalog.example.com or http://127.0.0.1:8181")
    if "@" in urlsplit(value).netloc:
        # It would appear in messages and in `namespace_id`.
        raise ValueError("it contains a user or a password; set them as properties")
    return value


def _proxy(value: SecretStr) -> SecretStr:
    url = value.get_secret_value()
    if url != "none" and not is_url(url):
        raise ValueError("not a URL; write e.g. http://proxy.example.com:3128, or none")
    return value


def is_url(text: str) -> bool:
    """Returns whether the text is an HTTP or HTTPS URL."""
    try:
        _ = urlsplit(text).port
    except ValueError:
        return False
    return re.fullmatch(r"https?://[^/\s?#]+([/?][^\s#]*)?", text) is not None


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        raise ValueError("no name of a header")
    return name


def _header_value(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not (text.isascii() and text.isprintable()):
        raise ValueError("a header cannot contain it; use printable ASCII on one line")
    return value


def _token(value: SecretStr) -> SecretStr:
    if not (token := bearer_token(value.get_secret_value())):
        raise ValueError("it is empty; set it to a token, or leave it out")
    return SecretStr(token)


BearerToken = Annotated[SecretStr, AfterValidator(_token)]
"""A token, also after `Bearer`."""

Url = Annotated[str, AfterValidator(_url)]
"""An HTTP or HTTPS URL without user and password."""


def _endpoint(value: str) -> str:
    if "?" in value:
        raise ValueError("it has a query, so no path can be appended; set credentials as properties")
    return value


Endpoint = Annotated[Url, AfterValidator(_endpoint)]
"""A base URL, to which paths are appended."""

Expiry = float | datetime | None
"""Expiry of a token: seconds from now, seconds since 1970, or a datetime with a time zone; None if unknown."""

TokenResult = str | tuple[str, Expiry]
TokenFunction = Callable[[], TokenResult | Awaitable[TokenResult]]
"""Returns a bearer token, alone or with its expiry; may be a coroutine function."""


class Transport(Protocol):
    """What this package needs of an `httpx.AsyncBaseTransport`; httpx is not imported before it is used."""

    async def handle_async_request(self, request: Any) -> Any:
        """Sends an `httpx.Request`, and returns the `httpx.Response`."""

    async def aclose(self) -> None:
        """Closes the connections."""


Transports = Transport | Callable[[], Transport]
"""An httpx transport, or a function that creates one for the connections of one event loop."""


def _transport(value: object) -> object:
    if not (callable(value) or hasattr(value, "handle_async_request")):
        raise ValueError("it is an httpx.AsyncBaseTransport, or a function that returns one")
    return value


Secrets = Mapping[str, SecretStr]
HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[SecretStr, AfterValidator(_header_value)]


def conceal(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the properties with each text as a secret, for the local variables of functions that may fail.

    Error collectors record the local variables of all frames of a traceback. May be called twice. A path is its text.

    Returns:
        The properties; the type of `properties` if they are no mapping, for the message of `by_name`.
    """
    if not isinstance(properties, Mapping):
        return properties if isinstance(properties, type) else type(properties)
    return {
        key: SecretStr(fspath(value)) if isinstance(value, str | PathLike) else value
        for key, value in properties.items()
    }


def reveal(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties with the texts in place of secrets."""
    return {
        key: value.get_secret_value() if isinstance(value, SecretStr) else value for key, value in properties.items()
    }


def by_name(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the properties, which `conceal` has returned.

    Raises:
        InvalidInputError: They are not a mapping. The message does not show the value, which may be a secret.
    """
    if not isinstance(properties, Mapping):
        kind = properties.__name__
        raise InvalidInputError(f"properties: they are a dict, for example {{'root': 'lake'}}, and this is a {kind}")
    return properties


def with_objects(properties: Mapping[str, Any], **objects: TokenFunction | Transports | None) -> Mapping[str, Any]:
    """Returns the properties with Python objects as further ones, such as `token`; without those that are None.

    Raises:
        InvalidInputError: The properties are not a mapping, or contain another object of the same name.
    """
    result: dict[str, Any] = dict(by_name(conceal(properties)))
    for name, value in objects.items():
        if value is not None and result.setdefault(name, value) is not value:
            raise InvalidInputError(f"{name}: given twice, also among the properties; give one")
    return result


class Settings(BaseModel, ABC):
    """Settings of every backend. A property has the name of its field; `-` and `.` count as `_`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    backend: ClassVar[str]
    """The optional prefix of property names, as in `iceberg.endpoint`."""
    prefixes: ClassVar[tuple[str, ...]] = ("storage",)
    """Fields that collect all properties that start with the field's name and a dot."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of fields, as other clients call the properties."""
    in_millis: ClassVar[tuple[str, ...]] = ()
    """Durations that other clients set in milliseconds, as a property with `_millis` after the name."""

    max_retries: int = Field(default=_DEFAULT_POLICY.max_retries, ge=0)
    max_in_flight: int = Field(default=_DEFAULT_POLICY.max_in_flight, ge=1)
    adaptive: bool = _DEFAULT_POLICY.adaptive
    circuit_after: Seconds = Field(default=_DEFAULT_POLICY.circuit_after, ge=0)
    hedge_after: Seconds | None = Field(default=None, gt=0)
    attempt_timeout: Seconds | None = Field(default=None, gt=0)
    """None means the default of the backend."""
    operation_timeout: Seconds = Field(default=_DEFAULT_POLICY.operation_timeout, gt=0)
    backoff_initial: Seconds = Field(default=_DEFAULT_POLICY.backoff_initial, ge=0)
    backoff_max: Seconds = Field(default=_DEFAULT_POLICY.backoff_max, ge=0)
    drop_retention: Seconds = Field(default=0, ge=0)
    """How long a dropped table can be brought back, such as `7d`; its data stays so long. 0 deletes it at once."""
    storage: Secrets = {}
    """`storage.*` properties: storage options for Lance, without the prefix."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Self:
        """Returns the settings in `properties`.

        Raises:
            InvalidInputError: Properties are unknown or invalid; the message contains all problems.
        """
        properties = by_name(conceal(properties))
        settings, problems = cls._validate(properties)
        if settings is None or problems:
            raise InvalidInputError(f"{cls.backend} properties: {'; '.join(problems)}")
        return settings

    def policy(self) -> Policy:
        """Returns the policy of remote calls in these settings."""
        return Policy(
            max_retries=self.max_retries,
            max_in_flight=self.max_in_flight,
            adaptive=self.adaptive,
            circuit_after=self.circuit_after,
            hedge_after=self.hedge_after,
            attempt_timeout=self.attempt_timeout or self.usual_attempt(),
            operation_timeout=self.operation_timeout,
            backoff_initial=self.backoff_initial,
            backoff_max=self.backoff_max,
        )

    def limit(self, policy: Policy) -> Policy:
        """Returns the policy, reduced to what the backend's connections can support."""
        return policy

    def usual_attempt(self) -> float:
        """Returns the maximum seconds of one attempt of a call if `attempt_timeout` is not set."""
        return _DEFAULT_POLICY.attempt_timeout

    def storage_options(self) -> dict[str, str] | None:
        """Returns the storage options for Lance; None if none are configured."""
        return {key: value.get_secret_value() for key, value in self.storage.items()} or None

    @abstractmethod
    def identity(self) -> str:
        """Returns a text that identifies the catalog and the principal, without secrets."""

    @classmethod
    def _validate(cls, properties: Mapping[str, Any]) -> tuple[Self | None, list[str]]:
        """Returns the settings or None, and the problems; raises nothing, because its variables contain secrets."""
        values, keys, problems = cls._gather(reveal(properties))
        try:
            return cls.model_validate(values), problems
        except ValidationError as e:
            return None, [*problems, *(_problem(error, keys) for error in e.errors(include_url=False))]

    @classmethod
    def _gather(cls, properties: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
        """Returns the values by the names of the fields, the keys that they have in the properties, and problems."""
        values: dict[str, Any] = {prefix: {} for prefix in cls.prefixes}
        keys: dict[str, str] = {}
        problems: list[str] = []
        for key, value in properties.items():
            own = key.removeprefix(f"{cls.backend}.")
            if (time := folded(own).removesuffix("_millis")) in cls.in_millis and time != folded(own):
                own, value = time, f"{value}ms"
            prefix, _, rest = own.partition(".")
            if prefix in cls.prefixes and rest:
                values[prefix][rest] = value
            elif (name := cls.aliases.get(folded(own), folded(own))) not in cls.model_fields or name in cls.prefixes:
                problems.append(f"{key}: unknown, {cls._hint(name)}")
            elif name in values and values[name] != value:
                problems.append(f"{key}: given twice with different values, also as {keys[name]}")
            else:
                values[name], keys[name] = value, key
        return values, keys, problems

    @classmethod
    def _hint(cls, name: str) -> str:
        near = suggest(name, cls.names(), most=_MAX_NAMES)
        is_own = near.startswith("known") and cls.__module__.startswith(f"{__name__.partition('.')[0]}.")
        if name == "transport":
            return f"because {cls.backend} does not use httpx; leave it out"
        if folded(name) in _CLIENT and "credential" in cls.model_fields:
            return "use credential=ID:SECRET, or client_secret_file"
        return f"{near}; lance-ns profile properties {cls.backend} lists all" if is_own else near

    @classmethod
    def names(cls, *, aliases: bool = True) -> Iterator[str]:
        """Yields the names of the properties, with `.*` after prefixes; `aliases` adds other names of some."""
        # Those that a catalog requires come first, and then its own.
        fields = cls.model_fields
        bases = [base for base in cls.__mro__[1:] if issubclass(base, Settings)]
        inherited = {name for base in bases for name in base.model_fields}
        for name in sorted(fields, key=lambda name: (not fields[name].is_required(), name in inherited)):
            yield f"{name}.*" if name in cls.prefixes else name
        if aliases:
            yield from cls.aliases


class LocationSettings(Settings, ABC):
    """Settings of a catalog that stores a location for each table."""

    unique_locations: bool = True
    """Whether a table declared without a location gets one that was never used before.

    If so, it is the location of the catalog's layout with a random suffix. If not, it is predictable, and a table that
    is dropped and created again has the location of the previous one.
    """
    allow_aliases: bool = False
    """Whether a table may be declared or registered at the location of another table.

    If so, each drop describes all tables of the namespace, because it deletes no data of another table.
    """


class HttpSettings(Settings):
    """Additional settings of backends that use HTTP."""

    prefixes: ClassVar[tuple[str, ...]] = ("storage", "header")
    in_millis: ClassVar[tuple[str, ...]] = ("connect_timeout", "read_timeout")

    endpoint: Endpoint
    """The address of the catalog, e.g. `https://catalog.example.com`."""
    auth_token: Annotated[BearerToken, AfterValidator(_header_value)] | None = None
    """A bearer token, sent with every call."""
    connect_timeout: Millis = Field(default=10.0, gt=0)
    read_timeout: Millis = Field(default=30.0, gt=0)
    keep_alive: Seconds = Field(default=15.0, gt=0)
    """How long an idle connection may be reused."""
    header: Mapping[HeaderName, HeaderValue] = {}
    """`header.*` properties: HTTP headers sent with every call."""
    ca_bundle: str | None = None
    """A PEM file of certificate authorities to trust instead of the system's."""
    client_cert: str | None = None
    """A PEM file with a client certificate, and with its key unless `client_key` is set."""
    client_key: str | None = None
    proxy: Annotated[SecretStr, AfterValidator(_proxy)] | None = None
    """The URL of a proxy; None follows HTTP_PROXY, HTTPS_PROXY and NO_PROXY, and `"none"` disables proxies."""
    max_response_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """Maximum size of a response in bytes."""
    transport: Annotated[Any, BeforeValidator(_transport)] = Field(default=None, repr=False, exclude=True)
    """An httpx transport, only in Python; None means this package's own, which alone uses the settings of TLS, proxies
    and `keep_alive`."""

    def usual_attempt(self) -> float:
        """Returns the time-outs for connecting and reading together."""
        return self.connect_timeout + self.read_timeout

    def checks_hostname(self) -> bool:
        """Returns whether the server's certificate must name the host of the endpoint."""
        return True

    def identity(self) -> str:
        """Returns the catalog's endpoint."""
        return self.endpoint


def _problem(error: ErrorDetails, keys: Mapping[str, str]) -> str:
    field = ".".join(keys.get(str(it), str(it)) for it in error["loc"])
    message: str = error["msg"].removeprefix("Value error, ")
    return f"{field}: {message}" if field else message


def folded(key: str) -> str:
    """Returns the field name for a property's key; prefixes are not removed."""
    return key.replace("-", "_").replace(".", "_")
