"""Signature Version 4 for requests of the HTTP transport, by botocore's signer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import urlsplit

import anyio.to_thread
import httpx
from aiobotocore.session import AioSession
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.transports.aws.credentials import ChainCredentials, Keys, KeySource, StaticCredentials
from lance_ns_async.transports.aws.failures import AWS_ERRORS
from lance_ns_async.transports.aws.settings import SigningSettings
from lance_ns_async.transports.aws.transport import AwsTransport, assume_role
from lance_ns_async.transports.aws.wire import suppress_logs

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

_UNSIGNED_HEADERS = frozenset({"accept", "accept-encoding", "connection", "user-agent"})
"""Headers that proxies may change on the way."""


class SigV4Signer:
    """Signs requests for one service with keys from a source."""

    def __init__(
        self, source: KeySource, *, name: str, region: str | None, beneath: AwsTransport | None = None
    ) -> None:
        """Creates a signer.

        Args:
            beneath: The transport that the source of keys uses, which is closed together with this; None if none.
            name: The name of the service.
            region: None means the region of AWS's own configuration.
        """
        self._source = source
        self._name = name
        self._region = region
        self._beneath = beneath

    async def current(self) -> Keys:
        """Returns the keys for the next request."""
        if self._region is None:
            # AWS's configuration is read from files.
            self._region = await anyio.to_thread.run_sync(_configured_region, abandon_on_cancel=True)
        return await self._source.current()

    async def replace(self, old: Keys) -> Keys | None:
        """Returns keys other than `old`, which the service rejected; None if there are no others."""
        return await self._source.replace(old)

    def sign(self, keys: Keys, method: str, url: str, headers: httpx.Headers, content: bytes | None) -> httpx.Headers:
        """Returns the headers of a request with its signature, which is valid for a few minutes.

        Another `Authorization` is sent as `Original-Authorization`, as Iceberg's own clients do. The signature covers
        the method, the path, the query, the body and the headers that proxies do not change.

        Args:
            url: The percent-encoded URL, exactly as it is sent.
        """
        signed_headers = headers.copy()
        if (authorization := signed_headers.pop("authorization", None)) is not None:
            signed_headers["original-authorization"] = authorization
        signed_headers.setdefault("host", _host(url))
        signed_headers["x-amz-content-sha256"] = sha256(content or b"").hexdigest()
        request = AWSRequest(
            method,
            url,
            headers={name: value for name, value in signed_headers.items() if name not in _UNSIGNED_HEADERS},
            data=content,
        )
        with suppress_logs():
            credentials = ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token)
            SigV4Auth(credentials, self._name, self._region).add_auth(request)
        signed_headers.update(dict(request.headers.items()))
        return signed_headers

    def secrets(self, headers: Mapping[str, str]) -> list[str]:
        """Returns the secrets in the headers of a signed request."""
        authorization = headers.get("original-authorization", "").rpartition(" ")[2]
        return [headers.get("x-amz-security-token", ""), authorization]

    async def aclose(self) -> None:
        """Closes the connections of the source of keys."""
        if self._beneath is not None:
            await self._beneath.aclose()


def open_sigv4(settings: SigningSettings, caller: Caller) -> SigV4Signer:
    """Returns the signer for the properties of a backend; reads no configuration and looks for no keys yet."""
    source: KeySource
    if settings.rest_access_key_id is None or settings.rest_secret_access_key is None:
        # The search has its own slots, so that calls that wait for keys cannot block it.
        properties = "rest.access-key-id and rest.secret-access-key"
        source = ChainCredentials(caller.beside(AWS_ERRORS), settings.rest_signing_region, properties)
    else:
        token = settings.rest_session_token.get_secret_value() if settings.rest_session_token else None
        keys = Keys(settings.rest_access_key_id, settings.rest_secret_access_key.get_secret_value(), token)
        source = StaticCredentials(keys)
    region, beneath = settings.rest_signing_region, None
    if settings.assume_role_arn is not None:
        source, beneath = assume_role(settings, source, caller, region)
    return SigV4Signer(source, name=settings.rest_signing_name, region=region, beneath=beneath)


def _configured_region() -> str:
    try:
        region = AioSession().get_config_variable("region") or os.environ.get("AWS_REGION")
    except BotoCoreError as e:
        raise InvalidInputError(f"rest.signing-region: AWS's configuration cannot be read: {e}") from e
    if not region:
        raise InvalidInputError("rest.signing-region: unknown; set it, or AWS_REGION")
    return str(region)


def _host(url: str) -> str:
    """Returns the value of the Host header for a URL, without a default port."""
    parts = urlsplit(url)
    return parts.netloc.removesuffix(_DEFAULT_PORTS.get(parts.scheme, ""))
