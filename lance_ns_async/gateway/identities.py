"""The namespaces of a gateway's callers, where catalogs decide by the identity of each caller: one for each token.

Connections, caches, batches, coalesced calls and vended credentials belong to a namespace, so callers share none.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, Self

from lance_namespace.errors import InvalidInputError

from lance_ns_async import registry
from lance_ns_async.calls.observers import Observer
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.gateway.mounts import MountedNamespace
from lance_ns_async.gateway.responses import RequestError, unavailable
from lance_ns_async.gateway.rights import Principal
from lance_ns_async.masked import MaskedText
from lance_ns_async.settings import HttpSettings, conceal, folded
from lance_ns_async.transports.http.oauth2 import OAuth2Settings

Identity = Literal["forward", "exchange"]
"""What catalogs get: the caller's token, or a token for which it is exchanged (RFC 8693)."""

Recorder = Callable[[AsyncNamespace], AbstractContextManager[None]]
"""Records the calls of a namespace while the context is open."""

MAX_CALLERS = 256  # Maximum number of open namespaces, each with its own connections and caches.
IDLE = 600.0  # Seconds without a request after which a namespace is closed.
_CACHE_PARTS = 32  # The caches of a namespace are smaller than usual by this factor.

_OF_THE_CLIENT = frozenset(
    {
        *("credential", "client_secret_file", "client_id", "oauth2_server_uri", "scope", "audience", "resource"),
        *("subject_token_type", "requested_token_type"),
    }
)
"""Properties of the gateway as the client of a token endpoint, which `exchange` uses."""

_SIGN_IN = (OAuth2Settings.model_fields.keys() - HttpSettings.model_fields.keys()) | {"auth_token"}
"""Properties that sign in, and those that matter only with them."""

_IDENTITY_HEADERS = frozenset({"authorization", "cookie", "x-api-key", "x-lance-token"})


@dataclass(slots=True)
class _Caller:
    """The open namespace of a caller."""

    namespace: AsyncNamespace | MountedNamespace
    opened: AsyncExitStack
    uses: int = 0  # The number of requests that use it; only an unused one is closed.
    used_at: float = 0.0


class SharedNamespace:
    """One namespace for all callers, with the identity of the gateway."""

    is_shared = True

    def __init__(self, namespace: object) -> None:
        self.model = namespace

    def use(self, _: Principal) -> AbstractContextManager[object]:
        """Returns the namespace."""
        return nullcontext(self.model)


class CallerNamespaces:
    """The namespaces of the callers of one gateway, for `serving`: opened when needed, and closed with the context."""

    is_shared = False
    model: AsyncNamespace | MountedNamespace
    """A namespace without an identity, which has the same operations; no request of a caller uses it."""

    def __init__(
        self,
        catalogs: Mapping[str, tuple[str, Mapping[str, str]]],
        identity: Identity,
        *,
        recorders: Sequence[Recorder] = (),
        most: int = MAX_CALLERS,
        idle: float = IDLE,
    ) -> None:
        """Checks the properties; opens nothing yet.

        Args:
            catalogs: The name of the backend and the properties of each catalog, by its mount; a single one at the
                mount "" is the whole namespace. Their credentials are not used, except by `exchange` those of the
                gateway as the client of the token endpoint, such as `credential`.
            identity: What catalogs get: the caller's token, or a token for which it is exchanged.
            recorders: Record the calls of each namespace, for example `telemetry.instrument`.
            most: Maximum number of open namespaces. Beyond it, the least recently used one is closed.
            idle: Seconds without a request after which a namespace is closed.

        Raises:
            InvalidInputError: A catalog takes no bearer tokens, or a property is invalid or another identity.
        """
        self._token = "auth_token" if identity == "forward" else "subject_token"
        kept = frozenset() if identity == "forward" else _OF_THE_CLIENT
        self._catalogs = {mount: (impl, _without(impl, it, _SIGN_IN)) for mount, (impl, it) in catalogs.items()}
        self._for_callers = {
            mount: (impl, _without(impl, it, _SIGN_IN - kept)) for mount, (impl, it) in catalogs.items()
        }
        for impl, properties in self._for_callers.values():
            _check(impl, {**properties, self._token: "token"}, identity)
        self._recorders = tuple(recorders)
        self._most = most
        self._idle = idle
        self._callers: OrderedDict[MaskedText, _Caller] = OrderedDict()  # By token; the last used one is at the end.
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._anonymous = self._open(self._catalogs)
        self.model = self._anonymous.namespace
        # Tasks, because the error of one end must not end the others, as it would in a group.
        self._sweep = asyncio.create_task(self._close_idle())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sweep.cancel()
        for token in [*self._callers]:
            self._close(token)
        self._start(self._anonymous.opened.aclose())
        await asyncio.wait([self._sweep, *self._tasks])

    def __len__(self) -> int:
        return len(self._callers)

    @contextmanager
    def observe(self, observer: Observer) -> Iterator[None]:
        """Passes the calls of the namespaces that are opened while the context is open to `observer`."""
        recorders = self._recorders
        self._recorders = (*recorders, lambda namespace: namespace.observe(observer))
        try:
            yield
        finally:
            self._recorders = recorders

    @contextmanager
    def use(self, principal: Principal) -> Iterator[AsyncNamespace | MountedNamespace]:
        """Yields the namespace of a caller, which stays open until the end of the block.

        Raises:
            RequestError: The caller has no token of the issuer, or all namespaces are in use.
        """
        if (token := principal.token) is None:
            raise RequestError(
                403,
                f"Permission denied: {principal.name} has a token of this gateway, which the catalog does not know; "
                "send a token of the identity provider",
            )
        if token not in self._callers:
            self._make_room()
            self._callers[token] = self._open(self._for_callers, token)
        self._callers.move_to_end(token)
        caller = self._callers[token]
        caller.uses += 1
        try:
            yield caller.namespace
        finally:
            caller.uses -= 1
            caller.used_at = monotonic()

    def _make_room(self) -> None:
        if len(self._callers) >= self._most:
            unused = next((token for token, caller in self._callers.items() if not caller.uses), None)
            if unused is None:
                raise unavailable(f"{self._most} callers have requests in progress, the maximum")
            self._close(unused)

    def _open(self, catalogs: Mapping[str, tuple[str, Mapping[str, Any]]], token: MaskedText | None = None) -> _Caller:
        own = {} if token is None else conceal({self._token: token})
        mounts: dict[str, AsyncNamespace] = {}
        opened = AsyncExitStack()
        for mount, (impl, properties) in catalogs.items():
            mounts[mount] = namespace = AsyncNamespace.connect(impl, {**properties, **own})
            opened.push_async_callback(namespace.aclose)
            for recorder in self._recorders:
                opened.enter_context(recorder(namespace))
            namespace.session.opener.reduce_caches(_CACHE_PARTS)
            # The storage below the root shows what others have dropped, and does not ask the catalog.
            namespace.session.root = None
        return _Caller(mounts.get("") or MountedNamespace(mounts), opened)

    def _close(self, token: MaskedText) -> None:
        self._start(self._callers.pop(token).opened.aclose())

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(self._idle / 10)
            until = monotonic() - self._idle
            for token in [token for token, it in self._callers.items() if not it.uses and it.used_at <= until]:
                self._close(token)


def _without(impl: str, properties: Mapping[str, str], names: frozenset[str] | set[str]) -> Mapping[str, Any]:
    """Returns the properties without those with the names, however they are written, as secrets."""
    settings = registry.load(impl).settings

    def name(key: str) -> str:
        own = key.removeprefix(f"{settings.backend}.")
        # Iceberg's clients name a token to exchange by its type.
        return "subject_token" if own.startswith("urn:") else settings.aliases.get(folded(own), folded(own))

    return conceal({key: value for key, value in properties.items() if name(key) not in names})


def _check(impl: str, properties: Mapping[str, Any], identity: Identity) -> None:
    """Raises InvalidInputError if calls cannot have the identity of the caller, or would have another one, too."""
    if not issubclass(kind := registry.load(impl).settings, OAuth2Settings):
        raise InvalidInputError(f"identity {identity}: {impl} takes no bearer tokens; use identity='own'")
    try:
        settings = kind.parse(properties)
    except InvalidInputError as e:
        raise InvalidInputError(f"identity {identity}: {e}") from None
    if getattr(settings, "rest_sigv4_enabled", False):
        raise InvalidInputError(
            f"identity {identity}: rest.sigv4-enabled signs all calls with one key; use identity='own'"
        )
    for name in settings.header:
        if name.lower() in _IDENTITY_HEADERS:
            raise InvalidInputError(
                f"identity {identity}: header.{name} would be sent for all callers; remove it, or use identity='own'"
            )
