"""Catalogs whose servers send the responses that a test chooses, and namespaces that call them."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace, TableId
from tests.fakes.sockets import Server, http, read_request
from tests.fakes.thrift_wire import REPLY, Message, read_message
from tests.faults.catalogs import SECRET, properties

Ask = Callable[[AsyncNamespace], Awaitable[object]]


def asks(operation: str, *id: str, **more: Any) -> Ask:
    return lambda ns: getattr(ns, operation)({"id": list(id), **more})


def walks(operation: str, *id: str) -> Ask:
    async def walk(ns: AsyncNamespace) -> object:
        return [result async for result in getattr(ns, operation)(list(id), recursive=True)]

    return walk


def many(*namespace: str, count: int) -> Ask:
    return lambda ns: ns.describe_tables([TableId([*namespace, f"t{i}"]) for i in range(count)])


PROPERTIES = {"k": "v", "location": "s3://lake/n"}
PLACE = "s3://lake/n/t0"
NO_TOKEN = ("auth_token",)
TOKEN = {"access_token": SECRET, "token_type": "bearer", "expires_in": 3600, "issued_token_type": "t"}
DATE = 1_700_000_000_000
VENDS = {"vend_credentials": True}
_LIMITS = {"max_retries": "0", "attempt_timeout": "5s", "adaptive": "false"}


@dataclass(frozen=True)
class Case:
    """A kind of response: the operation that causes it, and a correct response."""

    impl: str
    name: str
    pattern: str
    """A pattern for the requests that get it: method and target of HTTP, an action of Glue, or a Thrift method."""
    good: Any  # JSON, or the fields of a Thrift result
    ask: Callable[[AsyncNamespace], Awaitable[object]]
    around: Mapping[str, Any] = field(default_factory=dict)
    """The responses to other requests, by pattern; with a status and a body if they are not correct responses."""
    properties: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    anew: bool = False  # Whether a namespace requests it only once, and then remembers it
    secret: tuple[str, ...] | None = None  # The path to the part in which all values may be secret
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
        self.answer: Any = None  # A body; for Thrift, a message without its header

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        while not reader.at_eof():
            writer.write(await (self._thrift if self.case.impl == "hive3" else self._http)(reader))
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
    with asyncio.Runner() as runner:
        server = runner.run(Answering(case).__aenter__())
        client = Asking(case, server, runner)
        try:
            yield client
        finally:
            runner.run(client.aclose())
            runner.run(server.__aexit__())


Path = tuple[Any, ...]  # The keys and indexes that lead to a value inside another
DROPPED = object()  # Represents a member that is omitted


def _nested(depth: int, *, lists: bool) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value] if lists else {"properties": value}
    return value


ODD_TEXTS = [
    "",
    " ",
    "\0",
    "\r\nX-Injected: 1",
    "a" * 5000,
    "é日本\U0001f600",
    "\u202e\u2028",
    "%",
    "%s{0}",
    "..",
    "a/b?c#d%2F",
    "$",
    "lance",
    "LANCE",
    "\x1f",
    "-1",
    "9" * 400,
    "://",
    "http://[",
    "NaN",
]
"""Texts that code could misinterpret as another type."""

ODD_NUMBERS = [0, -1, 2**31, 2**53 + 1, -(2**63), 2**64, 10**400, -0.0, 1e308, 1e-308, 0.1]

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(ODD_NUMBERS),
    st.sampled_from(ODD_TEXTS),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from([[], {}, [None], [[]], [{}], {"": ""}, {"a": None}, ["a", 1], {"a": {"b": []}}]),
    st.builds(_nested, st.sampled_from([20, 200]), lists=st.booleans()),
)
"""Values of a wrong type."""

ANYTHING: st.SearchStrategy[Any] = st.recursive(
    ODD,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
"""Any JSON."""

RAW: st.SearchStrategy[bytes] = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"", b"OK", b"null", b"[" * 20_000, b'{"a":' * 20_000, b"1e999", b"9" * 5000, b"\xef\xbb\xbf{}"]),
    st.sampled_from([b"NaN", b'{"a": 1, "a": 2}', b'"\\ud800"', b"{}{}", b"<html><body>Bad day</body></html>"]),
)
"""Bytes that may not be JSON."""


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the path to each value inside another, and to itself."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inner:
        yield from paths(held, (*path, key))


def changed(value: Any, path: Path, new: Any) -> Any:
    """Returns the value with another value at the end of a path, or without it."""
    if not path:
        return {} if new is DROPPED else new
    *above, last = path
    result = value = copy.deepcopy(value)
    for key in above:
        result = result[key]
    if new is DROPPED:
        del result[last]
    else:
        result[last] = new
    return value


@st.composite
def mutated(draw: st.DrawFn, good: Any) -> Any:
    value = good
    for _ in range(draw(st.integers(1, 3))):
        value = changed(value, draw(st.sampled_from(list(paths(value)))), draw(st.one_of(st.just(DROPPED), ODD)))
    return value


def bodies(good: Any) -> st.SearchStrategy[bytes]:
    """Returns bodies of responses instead of the correct one."""
    encoded = json.dumps(good).encode()
    return st.one_of(
        mutated(good).map(_dumped),
        mutated(good).map(_dumped),
        ANYTHING.map(_dumped),
        RAW,
        st.integers(0, len(encoded)).map(lambda end: encoded[:end]),
    )


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()
