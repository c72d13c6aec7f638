"""Who asks AWS: static keys, what AWS's chain of providers finds, or an assumed role; each renewed by one for all."""

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

from lance_ns_async.calls.concurrency import SingleFlight
from lance_ns_async.calls.policy import Caller, deadline
from lance_ns_async.errors import Failure
from lance_ns_async.model import NamespaceId
from lance_ns_async.transports.aws.failures import failure
from lance_ns_async.transports.aws.logs import unlogged

_EARLY, _LATE = (900.0, 0.25), (600.0, 0.1)
"""Seconds before their end, and share of their life, at which keys are renewed while in use, and no longer used."""

_PATIENCE, _PAUSE = 5.0, 30.0
"""Seconds that an early renewal may hold up the call that makes it, and until one that failed is tried again."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What requests are signed with."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Session:
    """Keys and how many seconds they live."""

    keys: Keys
    lifetime: float


class Credentials(Protocol):
    """Gives the keys of the next request."""

    async def current(self) -> Keys:
        """Keys that are believed to be good."""
        ...

    async def renewed(self, refused: Keys) -> Keys | None:
        """Keys other than those a service refused; None where there are no others."""
        ...


class StaticCredentials:
    """Keys that never change."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def current(self) -> Keys:
        """The keys."""
        return self._keys

    async def renewed(self, refused: Keys) -> Keys | None:
        """None: there are no others."""
        return None


class ChainCredentials:
    """What AWS's own chain finds: variables, profiles, single sign-on, web identity, containers, instances.

    Files, processes and their waits are kept off the event loop: each search and each renewal is made in a
    thread, with a loop of its own.
    """

    def __init__(self, caller: Caller, region: str | None) -> None:
        self._caller = caller
        self._region = region
        self._renewal = SingleFlight(self._renew)
        self._found: Any = None
        self._keys: Keys | None = None

    async def current(self) -> Keys:
        """The keys last found, or what the chain gives now where they are about to end."""
        return self._living() or await self._renewal.outcome(self._living)

    async def renewed(self, refused: Keys) -> Keys | None:
        """What the whole chain finds anew; None where that is what was refused."""
        if self._keys == refused:
            self._found = None
        keys = await self.current()
        return None if keys == refused else keys

    def _living(self) -> Keys | None:
        if self._found is None:
            return None
        ending = isinstance(self._found, RefreshableCredentials) and self._found.refresh_needed()
        return None if ending else self._keys

    async def _renew(self) -> Keys:
        async def send() -> Keys:
            # Nobody else may use what was found before while a thread does, which a cancelled call leaves behind.
            before, self._found = self._found, None
            try:
                self._found, keys = await anyio.to_thread.run_sync(
                    lambda: asyncio.run(unlogged(self._search(before))), abandon_on_cancel=True
                )
            except (BotoCoreError, ClientError) as e:
                raise failure(e) from e
            except (LookupError, OSError, RuntimeError, ValueError) as e:
                # A program that is not there or says what cannot be read, keys that have ended when they come.
                message = f"{type(e).__name__}: {e}"
                raise Failure("CredentialRetrievalError", message=message, delivered=False) from e
            return keys

        self._keys = await self._caller.call(send, subject=NamespaceId(), operation="load_credentials")
        return self._keys

    async def _search(self, found: Any) -> tuple[Any, Keys]:
        if found is None:
            session = AioSession()
            if self._region is not None:
                session.set_config_variable("region", self._region)
            found = await session.get_credentials()
        if found is None:
            raise NoCredentialsError
        frozen = await found.get_frozen_credentials()
        return found, Keys(frozen.access_key, frozen.secret_key, frozen.token)


class AssumedCredentials:
    """An assumed role's keys, got by `fetch` once for all who want them.

    They are renewed early by one caller, while the others go on with the old ones; if that fails, the old ones
    serve until they are about to end.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Session]]) -> None:
        self._fetch = fetch
        self._renewal = SingleFlight(self._renew)
        self._keys: Keys | None = None
        self._early = self._late = 0.0
        self._renewing = False

    async def current(self) -> Keys:
        """The present keys, or new ones where they are about to end; raises what STS answered."""
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

    async def renewed(self, refused: Keys) -> Keys | None:
        """The keys that replace those refused; fetched only if nobody replaced them meanwhile."""
        return await self._renewal.outcome(lambda: None if self._keys == refused else self._living())

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


def assumed_session(answer: Mapping[str, Any]) -> Session:
    """The session that STS gave out; its life is told by the clock of the server, whatever ours says."""
    found = answer["Credentials"]
    now = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    since = parsedate_to_datetime(now) if now else datetime.now(UTC)
    keys = Keys(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
    return Session(keys, (found["Expiration"] - since).total_seconds())
