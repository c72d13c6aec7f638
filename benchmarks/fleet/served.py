"""A fake catalog in a separate process, each request after the latency of a network."""

import asyncio
import importlib
import importlib.util
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any


class Served:
    """A fake catalog at the other end of a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.properties: dict[str, str] = pipe.recv()

    def clear(self, latency: float) -> None:
        """Forgets the requests; later ones wait for `latency` seconds."""
        self._pipe.send(("clear", latency))
        self._pipe.recv()

    def requests(self) -> tuple[int, int]:
        """Returns the numbers of all requests, and of those that change something."""
        self._pipe.send(("requests", 0.0))
        counts: tuple[int, int] = self._pipe.recv()
        return counts


@contextmanager
def served(impl: str, tables: int) -> Iterator[Served]:
    """Runs a fake with that many tables in its namespace `sales`, for as long as the context lasts."""
    context = multiprocessing.get_context("spawn")
    ours, other = context.Pipe()
    process = context.Process(target=_serve, args=(other, impl, tables))
    process.start()
    other.close()
    try:
        with ours:
            yield Served(ours)
    finally:
        process.join()


def _serve(pipe: Connection, impl: str, tables: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if importlib.util.find_spec("uvloop"):
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())
    server, properties = _FAKES[impl](tables)
    with server:
        pipe.send(properties(server))
        while True:
            try:
                what, latency = pipe.recv()
            except EOFError:
                return
            if what == "clear":
                server.heal()
                server.delay(latency)
                server.clear()
                pipe.send(None)
            else:
                changes = [request for request in server.requests if request.method != "GET"]
                pipe.send((len(server.requests), len([it for it in changes if "oauth" not in it.path])))


def _iceberg(tables: int) -> tuple[Any, Any]:
    from tests.fakes.iceberg import FakeIceberg

    server = FakeIceberg()
    for number in range(tables):
        name = f"t{number:05}"
        properties = {"table_type": "lance", "number": str(number)}
        server.add_table(["sales"], name, properties=properties, location=f"s3://lake/sales/{name}")
    return server, lambda server: {"endpoint": server.endpoint, "root": "s3://lake"}


def _polaris(tables: int) -> tuple[Any, Any]:
    from tests.fakes.polaris import FakePolaris

    server = FakePolaris(base="s3://lake")
    server.add_catalog("lake")
    return server, lambda server: server.properties


_FAKES = {"iceberg": _iceberg, "polaris": _polaris}
