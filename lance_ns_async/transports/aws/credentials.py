"""AWS credentials: static keys, AWS's provider chain, or an assumed role; concurrent callers share each renewal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Any, Protocol

import anyio.to_thread
from aiobotocore.session import AioSession
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.tasks import SingleFlight
from lance_ns_async.errors import Failure
from lance_ns_async.model import NamespaceId
from lance_ns_async.transports.aws.failures import failure
from lance_ns_async.transports.aws.wire import call_unlogged

_EARLY, _LATE = (900.0, 0.25), (600.0, 0.1)
"""Times before expiry, in seconds and as a fraction of the lifetime: for an early renewal, and for the end of use.

The smaller of the two values applies.
"""

_PATIENCE, _PAUSE = 5.0, 30.0
"""Maximum seconds that an early renewal delays its call, and seconds until a failed early renewal is retried."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Access keys that sign requests."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RoleSession:
    """Keys and their lifetime in seconds."""

    keys: Keys
    lifetime: float


class KeySource(Protocol):
    """Source of the keys for the next request."""

    async def current(self) -> Keys:
        """Returns keys that are expected to be valid."""
        ...

    async def replace(self, old: Keys) -> Keys | None:
        """Returns keys other than `old`, which a service rejected; None if there are no others."""
        ...


class StaticCredentials:
    """Keys that never change."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def current(self) -> Keys:
        """Returns the keys."""
        return self._keys

    async def replace(self, old: Keys) -> Keys | None:
        """Returns None, because there are no other keys."""
        return None


class ChainCredentials:
    """Keys from AWS's provider chain: variables, profiles, single sign-on, web identity, containers, instances.

    Each search and each renewal runs in a worker thread with its own event loop, because it may read files and wait
    for processes.
    """

    def __init__(self, caller: Caller, region: str | None, properties: str) -> None:
        self._caller = caller
        self._region = region
        self._properties = properties  # The names of those that contain keys, for messages.
        self._renewal = SingleFlight(self._renew)
        self._credentials: Any = None
        self._keys: Keys | None = None

    async def current(self) -> Keys:
        """Returns the keys last found, or new keys from the chain if those are about to expire."""
        return self._living() or await self._renewal.outcome(self._living)

    async def replace(self, old: Keys) -> Keys | None:
        """Returns other keys, after a new search of the whole chain if needed; None if the chain still has `old`."""
        if self._keys == old:
            self._credentials = None
        keys = await self.current()
        return None if keys == old else keys

    def _living(self) -> Keys | None:
        if self._credentials is None:
            return None
        ending = isinstance(self._credentials, RefreshableCredentials) and self._credentials.refresh_needed()
        return None if ending else self._keys

    async def _renew(self) -> Keys:
        async def send() -> Keys:
            # A cancelled call leaves its thread behind, so no other call may use the object that the thread uses.
            before, self._credentials = self._credentials, None
            try:
                self._credentials, keys = await anyio.to_thread.run_sync(
                    lambda: asyncio.run(call_unlogged(self._search(before))), abandon_on_cancel=True
                )
            except (BotoCoreError, ClientError) as e:
                raise failure(e) from e
            except (LookupError, OSError, RuntimeError, ValueError) as e:
                # The causes include a credential process that is missing or has invalid output, and expired keys.
                message = f"{type(e).__name__}: {e}"
                raise Failure("CredentialRetrievalError", message=message, delivered=False) from e
            return keys

        self._keys = await self._caller.call(send, subject=NamespaceId(), operation="load_credentials")
        return self._keys

    async def _search(self, credentials: Any) -> tuple[Any, Keys]:
        if credentials is None:
            session = AioSession()
            if self._region is not None:
                session.set_config_variable("region", self._region)
            credentials = await session.get_credentials()
        if credentials is None:
            message = f"no AWS credentials; set {self._properties}, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise Failure(NoCredentialsError.__name__, message=message, delivered=False)
        frozen = await credentials.get_frozen_credentials()
        return credentials, Keys(frozen.access_key, frozen.secret_key, frozen.token)


class AssumedCredentials:
    """The keys of an assumed role, from `fetch`; concurrent callers share one fetch.

    One caller renews them early, while the others continue with the old keys. If that fails, the old keys are used
    until they are about to expire.
    """

    def __init__(self, fetch: Callable[[], Awaitable[RoleSession]]) -> None:
        self._fetch = fetch
        self._renewal = SingleFlight(self._renew)
        self._keys: Keys | None = None
        self._early = self._late = 0.0
        self._renewing = False

    async def current(self) -> Keys:
        """Returns the current keys, or new ones if they are about to expire."""
        if (keys := self._living()) is None:
            return await self._renewal.outcome(self._living)
        if monotonic() >= self._early and not self._renewing:
            self._renewing = True
            try:
                with deadline(_PATIENCE):
                    return await self._renewal.outcome(self._fresh)
            except LanceNamespaceError:
                self._early = monotonic() + _PAUSE
            finally:
                self._renewing = False
        return keys

    async def replace(self, old: Keys) -> Keys | None:
        """Returns the keys that replace `old`; fetches them unless another caller has already done so."""
        return await self._renewal.outcome(lambda: None if self._keys == old else self._living())

    def _living(self) -> Keys | None:
        return self._keys if monotonic() < self._late else None

    def _fresh(self) -> Keys | None:
        return self._keys if monotonic() < self._early else None

    async def _renew(self) -> Keys:
        session = await self._fetch()
        end = monotonic() + session.lifetime
        self._early, self._late = (end - min(most, share * session.lifetime) for most, share in (_EARLY, _LATE))
        self._keys = session.keys
        return self._keys


def assumed_session(answer: Mapping[str, Any]) -> RoleSession:
    """Returns the session in a response of STS; its lifetime is computed with the server's clock, if known."""
    credentials = answer["Credentials"]
    now = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    since = parsedate_to_datetime(now) if now else datetime.now(UTC)
    keys = Keys(credentials["AccessKeyId"], credentials["SecretAccessKey"], credentials["SessionToken"])
    return RoleSession(keys, (credentials["Expiration"] - since).total_seconds())
