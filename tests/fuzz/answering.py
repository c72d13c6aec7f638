"""Catalogs whose servers send the responses that a test chooses, and namespaces that call them."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace
from tests.fakes.sockets import Server, http, read_request
from tests.fakes.thrift_wire import REPLY, Message, read_message
from tests.faults.catalogs import properties

_LIMITS = {"max_retries": "0", "attempt_timeout": "5s", "adaptive": "false"}


@dataclass(frozen=True)
class Case:
    """A kind of response: the operation that causes it, and a correct response."""

    impl: str
    name: str
    pattern: str
    """A pattern for the requests that get it: method and target of HTTP, an action of Glue, or a Thrift method."""
    good: Any
    """JSON, or the fields of a Thrift result."""
    ask: Callable[[AsyncNamespace], Awaitable[object]]
    around: Mapping[str, Any] = field(default_factory=dict)
    """The responses to other requests, by pattern; with a status and a body if they are not correct responses."""
    properties: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    anew: bool = False
    """Whether a namespace requests it only once, and then remembers it."""
    secret: tuple[str, ...] | None = None
    """The path to the part in which all values may be secret."""
    ends: type[LanceNamespaceError] | None = None
    """The outcome of the correct response, if all requests of its kind get the same one."""

    def __str__(self) -> str:
        return f"{self.impl}: {self.name}"


class Answering(Server):
    """Sends `answer` to the requests of a case, and correct responses to others."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.status = 200
        self.answer: Any = None
        """A body; for Thrift, a message without its header."""

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        while not reader.at_eof():
            data = await (self._thrift if self.case.impl == "hive3" else self._http)(reader)
            writer.write(data)
            await writer.drain()

    async def _http(self, reader: StreamReader) -> bytes:
        request = await read_request(reader)
        action = re.search(rb"(?i)x-amz-target: AWSGlue\.(\w+)", request)
        target = (action[1] if action else request.rpartition(b" HTTP/1.1\r\n")[0].split(b"\r\n")[0]).decode()
        if target.startswith("HEAD "):
            return http(200, b"").data
        if re.search(self.case.pattern, target):
            return http(self.status, self.answer, {"Content-Type": "application/json"}).data
        around = self._around(target)
        status, good = around if isinstance(around, tuple) else (200, around)
        return http(status, json.dumps(good)).data

    async def _thrift(self, reader: StreamReader) -> bytes:
        message = await read_message(reader)
        if not re.search(self.case.pattern, message.name):
            return Message(REPLY, message.name, message.sequence, self._around(message.name)).encoded()
        return Message(REPLY, message.name, message.sequence).encoded()[:-1] + bytes(self.answer)

    def _around(self, request: str) -> Any:
        return next((good for pattern, good in self.case.around.items() if re.search(pattern, request)), {})


class Asking:
    """Calls a server of a case in a separate event loop, which is idle between calls."""

    def __init__(self, case: Case, server: Answering, runner: asyncio.Runner) -> None:
        self.case = case
        self.server = server
        self.runner = runner
        self._open: AsyncNamespace | None = None

    @asynccontextmanager
    async def namespace(self) -> AsyncIterator[AsyncNamespace]:
        """Returns one namespace for all examples, unless the case needs a new one each time."""
        if self._open is not None:
            yield self._open
            return
        made = AsyncNamespace.connect(self.case.impl, self._properties())
        if self.case.anew:
            async with made:
                yield made
            return
        self._open = await made.__aenter__()
        yield self._open

    async def aclose(self) -> None:
        if self._open is not None:
            await self._open.aclose()

    def _properties(self) -> Mapping[str, str]:
        usual = properties(self.case.impl, self.server.url)
        kept = {key: value for key, value in usual.items() if key not in self.case.without}
        return {**kept, **_LIMITS, **self.case.properties}


@contextmanager
def asking(case: Case) -> Iterator[Asking]:
    """Provides a server of a case, and its client."""
    with asyncio.Runner() as runner:
        server = runner.run(Answering(case).__aenter__())
        client = Asking(case, server, runner)
        try:
            yield client
        finally:
            runner.run(client.aclose())
            runner.run(server.__aexit__())
