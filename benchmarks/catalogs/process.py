"""A fake service in a separate process, so that the measured CPU time is that of the client only."""

import asyncio
import importlib
import importlib.util
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.catalogs.extent import LATENCY, Extent


class Served:
    """A fake service in another process, controlled by a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.properties: dict[str, str] = self._answer()

    def ask(self, name: str, *arguments: Any) -> Any:
        """Returns the value of a method or a property of the fake."""
        self._pipe.send((name, arguments))
        return self._answer()

    def clear(self) -> None:
        """Resets the counter."""
        self.ask("clear")

    def count(self) -> int:
        """The number of requests since the reset, including those for tokens."""
        found: int = self.ask("count")
        return found

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            raise RuntimeError("the process of the fake service has ended; its output contains the reason") from None


@contextmanager
def served(impl: str, extent: Extent) -> Iterator[Served]:
    """Runs the fake of a catalog with its tables while the context is open."""
    context = multiprocessing.get_context("spawn")
    ours, other = context.Pipe()
    process = context.Process(target=serve, args=(other, impl, extent))
    process.start()
    other.close()
    try:
        with ours:
            yield Served(ours)
    finally:
        process.join()


def serve(pipe: Connection, impl: str, extent: Extent) -> None:
    """Serves a fake, with a latency for each request, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prefer_fast_loop()
    server: Any = {"polaris": polaris, "unity": unity}[impl](extent)
    with server:
        server.delay(LATENCY)
        pipe.send(server.properties)
        while True:
            try:
                name, arguments = pipe.recv()
            except EOFError:
                return
            found = len(server.requests) if name == "count" else getattr(server, name)
            pipe.send(found(*arguments) if callable(found) else found)


def polaris(extent: Extent) -> Any:
    """Returns a fake of Apache Polaris with the tables; the others are generic tables of another format."""
    from tests.fakes.polaris import FakePolaris

    server = FakePolaris()
    catalog, *levels = extent.namespace
    for name, is_lance in extent.names():
        other: dict[str, Any] = {} if is_lance else {"format": "csv", "properties": {}}
        server.add_table(catalog, levels, name, base_location=extent.location(name), **other)
    return server


def unity(extent: Extent) -> Any:
    """Returns a fake of Unity Catalog with the tables."""
    from tests.fakes.unity import FakeUnity

    catalog, schema = extent.namespace
    server = FakeUnity(catalog=catalog)
    for name, is_lance in extent.names():
        other: dict[str, Any] = {} if is_lance else {"data_source_format": "CSV", "properties": {}}
        server.add_table(catalog, schema, name, location=extent.location(name), **other)
    return server


def prefer_fast_loop() -> None:
    """Uses uvloop for the fake if it is installed, so that the server's speed does not limit the client."""
    if importlib.util.find_spec("uvloop"):
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())
