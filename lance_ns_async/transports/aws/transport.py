"""One wire: calls on an AWS service, signed and sent by aiobotocore. What an answer means is told by the backend."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError, ClientError, NoRegionError
from botocore.loaders import create_loader
from botocore.parsers import ResponseParserError
from lance_namespace.errors import InvalidInputError, UnauthenticatedError

from lance_ns_async.calls.concurrency import SingleFlight
from lance_ns_async.calls.policy import Caller
from lance_ns_async.errors import AnotherAnswerError, Failure
from lance_ns_async.model import Id, NamespaceId, Page
from lance_ns_async.transports.aws.credentials import (
    AssumedCredentials,
    ChainCredentials,
    Credentials,
    Keys,
    Session,
    StaticCredentials,
    assumed_session,
)
from lance_ns_async.transports.aws.failures import AWS_ERRORS, SIGNATURES, failure
from lance_ns_async.transports.aws.logs import unlogged
from lance_ns_async.transports.aws.parser import PlainJsonParsers
from lance_ns_async.transports.aws.settings import AwsSettings
from lance_ns_async.transports.aws.wire import DirectSession
from lance_ns_async.transports.http.redact import unsaid
from lance_ns_async.transports.http.reuse import Trust
from lance_ns_async.transports.http.wire import ResponseTooLargeError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Service:
    """Which service is called, and how it is reached."""

    name: str
    region: str | None
    endpoint: str | None
    connect_timeout: float
    read_timeout: float
    connections: int
    max_bytes: int
    """The longest answer that is read."""
    ca_bundle: str | None = None
    keep_alive: float = 12.0
    """Seconds for which an idle connection is used again."""

    @property
    def is_aws(self) -> bool:
        """Whether it is AWS's own, as far as properties and environment tell."""
        variables = (f"AWS_ENDPOINT_URL_{self.name.upper()}", "AWS_ENDPOINT_URL")
        return self.endpoint is None and not any(map(os.environ.get, variables))


class AwsTransport:
    """Makes calls on one AWS service. Its client is built by the first of them, in a thread."""

    def __init__(
        self,
        service: Service,
        credentials: Credentials,
        caller: Caller,
        *,
        beneath: AwsTransport | None = None,
    ) -> None:
        """`beneath` is what the credentials need, and is closed with the transport."""
        self._service = service
        self._credentials = credentials
        self._caller = caller
        self._opening = SingleFlight(self._open)
        self._signing = AioCredentials("", "")
        self._trust = Trust()
        self._client: Any = None
        self._stack = AsyncExitStack()
        self._closed = False
        if beneath is not None:
            self._stack.push_async_callback(beneath.aclose)

    async def call(
        self,
        action: str,
        arguments: Mapping[str, Any],
        *,
        subject: Id,
        operation: str,
        decode: Callable[[Any], T],
        safe: bool = True,
        optional: bool = False,
    ) -> T:
        """What `decode` makes of the answer to an `action`, which is spelled as botocore's methods are.

        A call that is not `safe` changes something. One that is `optional` is not known to every server that
        speaks for AWS. Costs one remote call, and one more where the credentials had expired.
        """
        client = self._client or await self._opening.outcome(lambda: self._client)
        keys = await self._credentials.current()
        perhaps = optional and not self._service.is_aws

        async def call(keys: Keys) -> T:
            async def send() -> T:
                self._sign_with(keys)
                answer = await self._answer(getattr(client, action), arguments, perhaps)
                try:
                    return _decoded(answer, decode)
                except AnotherAnswerError as e:
                    self._trust.withdraw()
                    raise Failure("mismatch", message=str(e)) from e

            return await self._caller.call(send, subject=subject, operation=operation, safe=safe)

        try:
            return await call(keys)
        except UnauthenticatedError:
            # What was refused did nothing, so even a write may be sent again with other keys.
            if (others := await self._credentials.renewed(keys)) is None:
                raise
        return await call(others)

    def paged(
        self,
        action: str,
        arguments: Mapping[str, Any],
        *,
        subject: Id,
        operation: str,
        decode: Callable[[Any], Page[T]],
        optional: bool = False,
    ) -> Callable[[str | None], Awaitable[Page[T]]]:
        """What gives the page of a listing at a token; see `call`."""

        async def fetch(token: str | None) -> Page[T]:
            asked = {**arguments, "NextToken": token} if token else arguments
            return await self.call(
                action, asked, subject=subject, operation=operation, decode=decode, optional=optional
            )

        return fetch

    async def aclose(self) -> None:
        """Closes the client; may be called twice."""
        self._closed = True
        await self._stack.aclose()

    async def _open(self) -> Any:
        self._check_open()
        client = await anyio.to_thread.run_sync(
            lambda: asyncio.run(_build(self._service, self._signing, self._trust)), abandon_on_cancel=True
        )
        # Nothing is awaited from here on, so a client is either closed with the transport or never used.
        self._check_open()
        self._stack.push_async_exit(client)
        self._client = client
        return client

    async def _answer(self, method: Callable[..., Awaitable[Any]], arguments: Mapping[str, Any], optional: bool) -> Any:
        self._check_open()
        try:
            return await unlogged(method(**arguments))
        except ResponseTooLargeError as e:
            raise Failure("unreadable", message=str(e)) from e
        except (BotoCoreError, ClientError, ResponseParserError) as e:
            secrets = self._signing.secret_key, self._signing.token
            found = failure(e, optional=optional, secrets=secrets)
            told = str(e)
            quoted = found.codes[0] in SIGNATURES or unsaid(told, secrets) != told
            raise found from (None if quoted else e)
        except (AttributeError, TypeError, RuntimeError) as e:
            # What a client says that is closed under a call.
            self._check_open(e)
            raise

    def _sign_with(self, keys: Keys) -> None:
        # Signing awaits nothing, so each request is signed with the keys of its own call.
        self._signing.access_key, self._signing.secret_key = keys.access_key, keys.secret_key
        self._signing.token = keys.token

    def _check_open(self, cause: Exception | None = None) -> None:
        if self._closed:
            raise InvalidInputError(f"{self._service.name} client: it is closed; connect anew") from cause


def open_aws(name: str, settings: AwsSettings, caller: Caller) -> AwsTransport:
    """A transport to the AWS service of that name; opens no connection yet."""
    if settings.ca_bundle is not None and not Path(settings.ca_bundle).is_file():
        raise InvalidInputError(f"{settings.backend} properties: ca_bundle: there is no file {settings.ca_bundle}")
    credentials, sts = _credentials(settings, caller)
    service = _service(name, settings, caller, settings.region, settings.endpoint)
    return AwsTransport(service, credentials, caller, beneath=sts)


def _credentials(settings: AwsSettings, caller: Caller) -> tuple[Credentials, AwsTransport | None]:
    own = _own_credentials(settings, caller)
    if settings.assume_role_arn is None:
        return own, None
    region = settings.assume_role_region or settings.region
    # With slots of its own: what waits for the role then holds none that getting it would need.
    beside = caller.beside(AWS_ERRORS)
    sts = AwsTransport(_service("sts", settings, caller, region, settings.sts_endpoint), own, beside)
    arguments = _role(settings)

    async def fetch() -> Session:
        return await sts.call(
            "assume_role", arguments, subject=NamespaceId(), operation="assume_role", decode=assumed_session
        )

    return AssumedCredentials(fetch), sts


def _own_credentials(settings: AwsSettings, caller: Caller) -> Credentials:
    if settings.access_key_id is None or settings.secret_access_key is None:
        return ChainCredentials(caller.beside(AWS_ERRORS), settings.region)
    token = settings.session_token.get_secret_value() if settings.session_token else None
    return StaticCredentials(Keys(settings.access_key_id, settings.secret_access_key.get_secret_value(), token))


def _role(settings: AwsSettings) -> dict[str, Any]:
    arguments = {
        "RoleArn": settings.assume_role_arn,
        "RoleSessionName": settings.assume_role_session_name,
        "DurationSeconds": int(settings.assume_role_timeout_sec),
    }
    if settings.assume_role_external_id is not None:
        arguments["ExternalId"] = settings.assume_role_external_id.get_secret_value()
    return arguments


def _service(name: str, settings: AwsSettings, caller: Caller, region: str | None, endpoint: str | None) -> Service:
    return Service(
        name=name,
        region=region,
        endpoint=endpoint,
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        connections=caller.policy.max_in_flight,
        ca_bundle=settings.ca_bundle,
        max_bytes=settings.max_response_bytes,
        keep_alive=settings.keep_alive,
    )


async def _build(service: Service, signing: AioCredentials, trust: Trust) -> Any:
    """A client that signs with `signing`.

    It is bound to no event loop before its first call, so a thread can build it: reading the descriptions of
    the service takes a tenth of a second.
    """
    config = AioConfig(
        connect_timeout=service.connect_timeout,
        read_timeout=service.read_timeout,
        max_pool_connections=service.connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Otherwise it is put together anew for every call.
        user_agent="lance-ns-async",
        connector_args={"keepalive_timeout": service.keep_alive},
        http_session_cls=partial(DirectSession, max_bytes=service.max_bytes, trust=trust),
    )
    try:
        session = AioSession()
        session.register_component("credential_provider", _Provider(signing))
        session.register_component("response_parser_factory", PlainJsonParsers())
        session.register_component("data_loader", _descriptions())
        region = service.region or session.get_config_variable("region") or os.environ.get("AWS_REGION")
        made = session.create_client(
            service.name, region_name=region, endpoint_url=service.endpoint, verify=service.ca_bundle, config=config
        )
        return await made.__aenter__()
    except NoRegionError as e:
        raise InvalidInputError(f"region of {service.name}: unknown; set the property region or AWS_REGION") from e
    except (BotoCoreError, ValueError) as e:
        raise InvalidInputError(f"{service.name} client: {e}") from e


@cache
def _descriptions() -> Any:
    """Reads the descriptions of services, each once in a process: that is most of what making a client takes."""
    return create_loader(os.environ.get("AWS_DATA_PATH"))


@dataclass(frozen=True, slots=True)
class _Provider:
    """Gives a session the credentials that its client is to sign with."""

    credentials: AioCredentials

    async def load_credentials(self) -> AioCredentials:
        return self.credentials


def _decoded(answer: Any, decode: Callable[[Any], T]) -> T:
    try:
        return decode(answer)
    except (ValueError, LookupError, TypeError, AttributeError) as e:
        # Names alone: what stands beside them may be credentials.
        message = f"an answer of unknown form ({type(e).__name__}: {e}): it holds {', '.join(map(str, answer))}"
        raise Failure("unreadable", message=message) from e
