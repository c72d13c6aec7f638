"""One event loop in a background thread, shared by all sync namespaces of the process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from lance_namespace.errors import InternalError

T = TypeVar("T")

_lock = threading.Lock()
_shared: BackgroundLoop | None = None


class BackgroundLoop:
    """An event loop that runs in a daemon thread as long as somebody leases it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="lance-ns-async", daemon=True)
        self._leases = 0
        self._thread.start()

    @classmethod
    def lease(cls) -> BackgroundLoop:
        """The shared loop, started if nobody had it; to be given back by `release`."""
        global _shared
        with _lock:
            if _shared is None:
                _shared = cls()
            _shared._leases += 1
            return _shared

    def release(self) -> None:
        """Gives a lease back; the last one stops the loop."""
        global _shared
        with _lock:
            self._leases -= 1
            if self._leases:
                return
            if _shared is self:
                _shared = None
        self._loop.call_soon_threadsafe(self._loop.stop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, run on the loop while this thread waits; interrupting the wait cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InternalError(
                "Internal error: a sync namespace was called from its own event loop, where waiting would hang "
                "for ever; use AsyncNamespace there"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def close_soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` without waiting for it and gives the lease back after it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(lambda _: self.release())

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def _forget() -> None:
    """In a forked child: threads do not survive a fork, and the lock may be held by one that did not."""
    global _lock, _shared
    _lock = threading.Lock()
    _shared = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
