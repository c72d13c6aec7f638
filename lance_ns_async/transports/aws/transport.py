"""Transport for AWS services on aiobotocore, which signs and sends calls. The backend interprets the responses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
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
from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.observers import http_status
from lance_ns_async.calls.tasks import SingleFlight
from lance_ns_async.errors import Failure
from lance_ns_async.masked import MaskedText, without_frames
from lance_ns_async.model import Id, NamespaceId, Page
from lance_ns_async.transports import USER_AGENT
from lance_ns_async.transports.aws.credentials import (
    AssumedCredentials,
    ChainCredentials,
    Keys,
    KeySource,
    RoleSession,
    StaticCredentials,
    assumed_session,
)
from lance_ns_async.transports.aws.failures import AWS_ERRORS, SIGNATURES, failure
from lance_ns_async.transports.aws.settings import AwsSettings, RoleSettings, SigningSettings
from lance_ns_async.transports.aws.wire import DirectSession, PlainJsonParsers, call_unlogged
from lance_ns_async.transports.http.reuse import Trust
from lance_ns_async.transports.http.wire import ResponseTooLargeError
from lance_ns_async.transports.responses import decode_body, redact

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Service:
    """An AWS service and the settings of the connections to it."""

    name: str
    region: str | None
    endpoint: str | None
    connect_timeout: float
    read_timeout: float
    connections: int
    max_bytes: int
    """Maximum size of a response in bytes."""
    ca_bundle: str | None = None
    keep_alive: float = 12.0
    """Seconds for which an idle connection may be reused."""

    @property
    def is_aws(self) -> bool:
        """Whether the service is AWS's own: neither properties nor environment set another endpoint."""
        variables = (f"AWS_ENDPOINT_URL_{self.name.upper()}", "AWS_ENDPOINT_URL")
        return self.endpoint is None and not any(map(os.environ.get, variables))


class AwsTransport:
    """Makes calls on one AWS service. The first call builds the client in a worker thread."""

    def __init__(
        self, service: Service, credentials: KeySource, caller: Caller, *, beneath: AwsTransport | None = None
    ) -> None:
        """Creates a transport without connections.

        Args:
            beneath: The transport that the credentials use, which is closed together with this one; None if none.
        """
        self._service = service
        self._credentials = credentials
        self._caller = caller
        self._opening = SingleFlight(self._open)
        self._signing = AioCredentials("", "")
        self._trust = Trust()
        self._client: Any = None
        self._stack = AsyncExitStack()
        self._is_closed = False
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
        """Makes a call and returns its decoded response.

        Args:
            action: The name of botocore's method.
            arguments: The arguments of that method.
            subject: The object of the call, for messages.
            operation: The name of the operation, for messages and the error table.
            decode: Converts the response.
            safe: Whether the call changes nothing. An unsafe call is sent again only if it certainly had no effect.
            optional: Whether servers other than AWS may not know the action.

        Cost: one remote call; one more to renew credentials, and one more to repeat a call whose keys were rejected.
        """
        client = self._client or await self._opening.outcome(lambda: self._client)
        keys = await self._credentials.current()
        perhaps = optional and not self._service.is_aws

        async def send() -> T:
            self._sign_with(keys)
            try:
                # The response is no variable, because it may contain credentials.
                return decode_body(decode, await self._answer(getattr(client, action), arguments, perhaps))
            except Failure as failure:
                if failure.codes[0] == "mismatch":
                    self._trust.withdraw()
                raise

        async def renew(failure: Failure) -> bool:
            nonlocal keys
            # A 407 is a proxy's, which does not check the keys.
            if failure.codes[-1] == 407:
                return False
            # A call with rejected keys had no effect, so even a write may be sent again with other keys.
            others = await self._credentials.replace(keys)
            keys = others or keys
            return others is not None

        return await self._caller.call(send, subject=subject, operation=operation, safe=safe, recover=renew)

    def page_fetcher(
        self,
        action: str,
        arguments: Mapping[str, Any],
        *,
        subject: Id,
        operation: str,
        decode: Callable[[Any], Page[T]],
        optional: bool = False,
    ) -> Callable[[str | None], Awaitable[Page[T]]]:
        """Returns a function that fetches the page of a listing at a token; see `call`."""

        async def fetch(token: str | None) -> Page[T]:
            page_arguments = {**arguments, "NextToken": token} if token else arguments
            return await self.call(
                action, page_arguments, subject=subject, operation=operation, decode=decode, optional=optional
            )

        return fetch

    def sibling(self, name: str, endpoint: str | None) -> AwsTransport:
        """Returns a transport to another service, with the same credentials and slots; it is closed with this one.

        Args:
            name: botocore's name of the service.
            endpoint: The URL of the service; None means AWS's own endpoint.
        """
        service = replace(self._service, name=name, endpoint=endpoint)
        sibling = AwsTransport(service, self._credentials, self._caller)
        self._stack.push_async_callback(sibling.aclose)
        return sibling

    async def partition_and_region(self) -> tuple[str, str]:
        """Returns the names in AWS's resource names, such as `aws` and `eu-central-1`; makes no remote call."""
        client = self._client or await self._opening.outcome(lambda: self._client)
        return client.meta.partition, client.meta.region_name

    async def aclose(self) -> None:
        """Closes the connections; may be called twice."""
        self._is_closed = True
        await self._stack.aclose()

    async def _open(self) -> Any:
        self._check_open()
        client = await anyio.to_thread.run_sync(
            lambda: asyncio.run(_build(self._service, self._signing, self._trust)), abandon_on_cancel=True
        )
        # Nothing is awaited after this check, so the transport cannot be closed before it has registered the client.
        self._check_open()
        self._stack.push_async_exit(client)
        self._client = client
        return client

    async def _answer(self, method: Callable[..., Awaitable[Any]], arguments: Mapping[str, Any], optional: bool) -> Any:
        self._check_open()
        try:
            return self._with_status(await call_unlogged(method(**arguments)))
        except ResponseTooLargeError as e:
            raise Failure("unreadable", message=str(e)) from e
        except (BotoCoreError, ClientError, ResponseParserError) as e:
            self._with_status(getattr(e, "response", {}))
            error, has_secrets = self._failure(e, optional)
            raise error from (None if has_secrets else without_frames(e))
        except (AttributeError, TypeError, RuntimeError) as e:
            # A client that is closed during a call raises these exceptions.
            self._check_open(e)
            raise

    def _with_status(self, response: Any) -> Any:
        """Notes the HTTP status of a response for observers, and returns the response."""
        if self._caller.observers.all:
            http_status.set(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
        return response

    def _failure(self, error: Any, optional: bool) -> tuple[Failure, bool]:
        """Returns the failure for an exception of botocore, and whether the exception contains secrets."""
        secrets = self._signing.secret_key, self._signing.token
        result, message = failure(error, optional=optional, secrets=secrets), str(error)
        return result, result.codes[0] in SIGNATURES or redact(message, secrets) != message

    def _sign_with(self, keys: Keys) -> None:
        # Nothing is awaited before the signature, so each request is signed with the keys of its own call.
        self._signing.access_key, self._signing.secret_key = keys.access_key, keys.secret_key
        self._signing.token = keys.token

    def _check_open(self, cause: Exception | None = None) -> None:
        if self._is_closed:
            raise InvalidInputError(f"{self._service.name} client: it is closed; connect anew") from cause


def open_aws(name: str, settings: AwsSettings, caller: Caller) -> AwsTransport:
    """Returns a transport to an AWS service; opens no connection yet.

    Args:
        name: botocore's name of the service.
    """
    if settings.ca_bundle is not None and not Path(settings.ca_bundle).is_file():
        raise InvalidInputError(f"{settings.backend} properties: ca_bundle: there is no file {settings.ca_bundle}")
    credentials, sts = _credentials(settings, caller)
    service = _service(name, settings, caller, settings.region, settings.endpoint)
    return AwsTransport(service, credentials, caller, beneath=sts)


def _credentials(settings: AwsSettings, caller: Caller) -> tuple[KeySource, AwsTransport | None]:
    own = _own_credentials(settings, caller)
    if settings.assume_role_arn is None:
        return own, None
    return assume_role(settings, own, caller, settings.region)


def assume_role(
    settings: AwsSettings | SigningSettings, own: KeySource, caller: Caller, region: str | None
) -> tuple[KeySource, AwsTransport]:
    """Returns the source of a role's keys, and the transport to STS that it uses; makes no call yet.

    Args:
        settings: The role, and the settings of connections.
        own: The keys that may assume the role.
        region: The region of the catalog; None means that of AWS's own configuration.
    """
    region = settings.assume_role_region or region
    # STS has its own slots, so that calls that wait for the role cannot block it.
    beside = caller.beside(AWS_ERRORS)
    sts = AwsTransport(_service("sts", settings, caller, region, settings.sts_endpoint), own, beside)
    arguments = _role(settings)

    async def fetch() -> RoleSession:
        return await sts.call(
            "assume_role", arguments, subject=NamespaceId(), operation="assume_role", decode=assumed_session
        )

    return AssumedCredentials(fetch), sts


def _own_credentials(settings: AwsSettings, caller: Caller) -> KeySource:
    if settings.access_key_id is None or settings.secret_access_key is None:
        return ChainCredentials(
            caller.beside(AWS_ERRORS), settings.region, properties="access_key_id and secret_access_key"
        )
    token = settings.session_token.get_secret_value() if settings.session_token else None
    return StaticCredentials(Keys(settings.access_key_id, settings.secret_access_key.get_secret_value(), token))


def _role(settings: RoleSettings) -> dict[str, Any]:
    arguments = {
        "RoleArn": settings.assume_role_arn,
        "RoleSessionName": settings.assume_role_session_name,
        "DurationSeconds": int(settings.assume_role_timeout_sec),
    }
    if settings.assume_role_external_id is not None:
        arguments["ExternalId"] = MaskedText(settings.assume_role_external_id.get_secret_value())
    return arguments


def _service(
    name: str, settings: AwsSettings | SigningSettings, caller: Caller, region: str | None, endpoint: str | None
) -> Service:
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
    """Returns a client that signs with `signing`.

    It is not bound to an event loop before its first call, so a worker thread can build it. Reading the service
    descriptions takes a tenth of a second.
    """
    config = AioConfig(
        connect_timeout=service.connect_timeout,
        read_timeout=service.read_timeout,
        max_pool_connections=service.connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Without a fixed value, it would be built again for every call.
        user_agent=USER_AGENT,
        connector_args={"keepalive_timeout": service.keep_alive},
        http_session_cls=partial(DirectSession, max_bytes=service.max_bytes, trust=trust),
    )
    try:
        session = AioSession()
        session.register_component("credential_provider", _Provider(signing))
        session.register_component("response_parser_factory", PlainJsonParsers())
        session.register_component("data_loader", _descriptions())
        region = service.region or session.get_config_variable("region") or os.environ.get("AWS_REGION")
        context = session.create_client(
            service.name, region_name=region, endpoint_url=service.endpoint, verify=service.ca_bundle, config=config
        )
        return await context.__aenter__()
    except NoRegionError as e:
        raise InvalidInputError(f"region of {service.name}: unknown; set the property region or AWS_REGION") from e
    except (BotoCoreError, ValueError) as e:
        raise InvalidInputError(f"{service.name} client: {e}") from e


@cache
def _descriptions() -> Any:
    """Returns a loader that reads each service description once per process; this is most of a client's build time."""
    return create_loader(os.environ.get("AWS_DATA_PATH"))


@dataclass(frozen=True, slots=True)
class _Provider:
    """A credential provider for botocore's session that returns fixed credentials."""

    credentials: AioCredentials

    async def load_credentials(self) -> AioCredentials:
        return self.credentials
