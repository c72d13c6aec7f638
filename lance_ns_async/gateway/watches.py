"""Watches of clients: changes of the catalog as server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any

from aiohttp import web
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError

from lance_ns_async.gateway import responses
from lance_ns_async.gateway.limits import Share
from lance_ns_async.gateway.responses import EventStream, unavailable
from lance_ns_async.gateway.rights import OWNER, Principal
from lance_ns_async.many.changes import Change
from lance_ns_async.many.watching import Watch
from lance_ns_async.session import Session
from lance_ns_async.spec.extensions import MAX_SINCE, WatchRequest
from lance_ns_async.storage.threads import aside

log: logging.Logger = logging.getLogger(__name__)

MAX_WATCHES = 100  # Maximum number of concurrent watches.
HEARTBEAT = 15.0  # Maximum seconds between two parts of a response; proxies close connections silent for a minute.
_SHARE = 4  # A client that is not the owner may have one of this many parts of the watches.
_MAX_TABLES = 20_000  # Maximum number of tables in all watches of a client that is not the owner, and in a token.
_SLICE = 100  # Number of events that are written before other requests get a turn.
_MAX_CONTENT = 16 << 20  # Maximum size of the content of a token in bytes, after decompression.
_STATE = 16  # Number of bytes in memory per byte of a token.

_COMMENT = b":\n\n"


class Watches:
    """The watches of one gateway: their maximum number, and the maximum seconds between two parts of a response."""

    def __init__(self, limit: int, heartbeat: float) -> None:
        if limit < 0:
            raise InvalidInputError(f"max_watches {limit}: must be at least 0; use 0 to refuse all watches")
        if not heartbeat > 0:
            raise InvalidInputError(f"heartbeat {heartbeat}: must be a number of seconds above 0")
        self.count: int = 0  # The number of watches in progress.
        self._counts: Counter[str] = Counter()  # The numbers of watches of each client.
        self._tables: Counter[str] = Counter()  # The numbers of tables in the watches of each client.
        self._limit = limit
        self._heartbeat = heartbeat
        self._stopped = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Ends all watches, and those that begin later after their first look."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def start(
        self,
        use: AbstractContextManager[object],
        request: WatchRequest,
        principal: Principal,
        check_rights: Callable[[], Awaitable[None]],
        share: Share,
    ) -> EventStream:
        """Returns the response after the first look; until it is closed, it counts as a watch in progress.

        `use` is the context of the namespace.

        The principal sees the changes of tables that it may use, as if there were no others. `check_rights` is called
        before each look, and raises an error if its rights have changed.
        """
        parts = self._parts(use, request, principal, check_rights, share)
        return EventStream(await anext(parts), parts)

    @contextmanager
    def _place(self, principal: Principal) -> Iterator[Callable[[Watch], None]]:
        """Counts a watch; yields what counts its tables."""
        if self.count >= self._limit:
            raise unavailable(f"{self.count} watches are in progress, the maximum")
        name, most = principal.name, max(1, self._limit // _SHARE)
        if principal is not OWNER and self._counts[name] >= most:
            raise unavailable(f"{most} watches of {name} are in progress, the maximum for one client")
        tables = 0

        def count_tables(watch: Watch) -> None:
            nonlocal tables
            self._tables[name] -= tables
            tables = len(watch.state.tables)
            self._tables[name] += tables
            if principal is not OWNER and self._tables[name] > _MAX_TABLES:
                raise unavailable(
                    f"the watches of {name} have more than {_MAX_TABLES} tables, the maximum for one client"
                )

        self.count += 1
        self._counts[name] += 1
        try:
            yield count_tables
        finally:
            self.count -= 1
            self._tables[name] -= tables
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name], self._tables[name]

    async def _parts(
        self,
        use: AbstractContextManager[object],
        request: WatchRequest,
        principal: Principal,
        check_rights: Callable[[], Awaitable[None]],
        share: Share,
    ) -> AsyncGenerator[bytes, None]:
        """Yields the parts of a response; raises errors of the first look only."""
        with self._place(principal) as count_tables, use as namespace:
            watch = _watch(namespace, request, principal)
            beginning = watch.state
            if request.since is None:
                changes = await watch.begin()
                count_tables(watch)
            else:
                limits = {"max_bytes": _MAX_CONTENT, "max_tables": _MAX_TABLES}
                await aside(partial(watch.resume, request.since, **limits, is_trusted=False), "states")
                count_tables(watch)
                changes = await watch.look()
            token = await _token(watch)
            share.take(_STATE * len(token))
            if request.since is not None:
                yield _COMMENT
            elif request.existing:
                yield _token_event(beginning.token())
            else:
                yield _token_event(token)
                changes = []
            while True:
                for start in range(0, len(changes), _SLICE):
                    part = changes[start : start + _SLICE]
                    yield b"".join(_event(change.kind, json.dumps(change.to_dict())) for change in part)
                    await asyncio.sleep(0)
                if changes:
                    yield _token_event(token)
                if request.every is None or self._stopped.done():
                    return
                # A look goes on beside the heartbeats. A task group around a `yield` could cancel another task.
                task = asyncio.create_task(_wait_and_look(watch, request.every, request.examine_every, check_rights))
                try:
                    while not await self._ends(task):
                        yield _COMMENT
                finally:
                    task.cancel()
                    await asyncio.wait([task])
                if task.cancelled():
                    return
                match task.result():
                    case web.Response(text=error):
                        yield _event("error", error or "")
                        return
                    case changes, token:
                        pass

    async def _ends(self, task: asyncio.Task[Any]) -> bool:
        """Returns whether a task or all watches end before the next heartbeat."""
        ends = [task, self._stopped]
        done, _ = await asyncio.wait(ends, timeout=self._heartbeat, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)


def _watch(namespace: object, request: WatchRequest, principal: Principal) -> Watch:
    session = getattr(namespace, "session", None)
    if not isinstance(session, Session):
        raise UnsupportedOperationError("Not supported: watch (the namespace of this gateway is no catalog)")
    # The name of the catalog in a token may not contain its address.
    catalog = blake2b(session.catalog.encode(), digest_size=8).hexdigest()
    return Watch(session, request.tables, versions=request.versions, may_see=principal.may_see, catalog=catalog)


async def _wait_and_look(
    watch: Watch, every: float, examine_every: float, check_rights: Callable[[], Awaitable[None]]
) -> tuple[Sequence[Change], str] | web.Response:
    """Returns what the next look sees, and the token after it; or the response for an error."""

    async def look() -> tuple[Sequence[Change], str]:
        await check_rights()
        changes = await watch.look(min(1.0, every / examine_every))
        return changes, await _token(watch) if changes else ""

    await asyncio.sleep(every)
    return await responses.respond(look(), log)


async def _token(watch: Watch) -> str:
    """Returns the token of a watch."""
    token = await aside(watch.state.token, "states")
    if len(token) > MAX_SINCE:
        raise InvalidInputError(f"tables: {len(watch.state.tables)} tables are too many for one watch; select fewer")
    return token


def _token_event(token: str) -> bytes:
    return _event("token", json.dumps({"token": token}))


def _event(name: str, line: str) -> bytes:
    return f"event: {name}\ndata: {line}\n\n".encode()
