"""The tests' side of the fake Glue server's process: starts, controls and stops it."""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from .quirks import GlueQuirks

T = TypeVar("T")

_TOP = Path(__file__).parents[3]
_POLL_SECONDS = 0.002


class Control:
    """A server's process, and the pipe to it. Calls from any thread are allowed."""

    def __init__(self, quirks: GlueQuirks, region: str) -> None:
        """Starts the process; `url` is the server's address."""
        self._lock = threading.Lock()
        self._pipe, theirs = multiprocessing.Pipe()
        with theirs:
            socket.send_fds(_orders(), [b"."], [theirs.fileno()])
        self._pipe.send((quirks, region))
        self.url: str = self._answer()

    def ask(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the server; raises ValueError if the server refuses."""
        with self._lock:
            self._pipe.send((name, arguments))
            return self._answer()

    def close(self) -> None:
        """Stops the server; its process ends."""
        try:
            self.ask("stop")
        finally:
            self._pipe.close()

    def _answer(self) -> Any:
        try:
            went_well, value = self._pipe.recv()
        except EOFError:
            raise RuntimeError("fake Glue server: its process has ended; standard error says why") from None
        if not went_well:
            raise ValueError(value)
        return value


@lru_cache(maxsize=1)
def _orders() -> socket.socket:
    """Returns the socket to the process from which servers are forked, which lives as long as this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", f"{__package__}.process"]
        process = subprocess.Popen(command, stdin=theirs.fileno(), cwd=_TOP)

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Log(list[T]):
    """The records of the server at the time of the request."""

    def __init__(self, noted: Iterable[T], forget: Callable[[], None]) -> None:
        super().__init__(noted)
        self._forget = forget

    def clear(self) -> None:
        """Clears the records and counts of the server."""
        super().clear()
        self._forget()


class Held:
    """Calls that wait until they are released."""

    def __init__(self, control: Control, number: int) -> None:
        self._control = control
        self._number = number

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""
        return int(self._control.ask("held_back", self._number))

    def wait_for(self, count: int = 1, within: float = 10.0) -> None:
        """Blocks the calling thread until `count` calls wait; raises TimeoutError after `within` seconds."""
        until = time.monotonic() + within
        while self.waiting < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.waiting} of {count} calls came to wait")
            time.sleep(_POLL_SECONDS)

    async def reached(self, count: int = 1) -> None:
        """Like `wait_for`, in a coroutine."""
        await asyncio.to_thread(self.wait_for, count)

    def release(self) -> None:
        """Lets the waiting calls continue, and later ones pass."""
        self._control.ask("let_go", self._number)
