"""A fast stub catalog in a separate process, with latency, limits and faults on demand, and counters.

`python -m benchmarks.support.stub` prints its endpoint and serves until its standard input ends.
`POST /_stub?latency=0.02&cap=50` sets these switches, resets all others to their defaults, and resets the counters;
`GET /_stub` returns the counters. `benchmarks.support.answers` has the responses to all other requests.
"""

import asyncio
import importlib
import importlib.util
import random
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from urllib.parse import parse_qsl

from benchmarks.support.answers import TAG, answer, refusal, render

CONTROL = b"/_stub"

UNCHANGED = render(304, "")


@dataclass(frozen=True, slots=True)
class Switches:
    """The behaviour of the stub. Shares are of all requests, chosen by a seeded random generator."""

    latency: float = 0.0
    """Latency of each response in seconds; refusals beyond the cap have none."""
    cap: int = 0
    """Maximum number of requests in flight; further requests are refused at once. 0 for no maximum."""
    cap_status: int = 503
    rate: float = 0.0
    """Requests per second that a token bucket admits; it first holds the tokens of one second. 0 for no limit.
    The stub refuses other requests at once with 429, as Polaris does."""
    retry_after: str = ""
    """The Retry-After header of refusals and faults; empty for none."""
    queue: int = 0
    """Maximum number of requests in progress; further ones wait. 0 for no maximum."""
    share_503: float = 0.0
    share_429: float = 0.0
    share_cut: float = 0.0
    """The share of requests whose connection is closed without a response."""
    seed: int = 0
    more_columns: int = 0
    """Number of additional columns in each loaded table, for large responses."""

    @classmethod
    def parse(cls, query: str) -> "Switches":
        """Returns the switches in a query string."""
        kinds = {"cap": int, "cap_status": int, "queue": int, "seed": int, "more_columns": int, "retry_after": str}
        return cls(**{name: kinds.get(name, float)(text) for name, text in parse_qsl(query)})


@dataclass(slots=True)
class Counts:
    """Counts since the switches were last set."""

    requests: int = 0
    """Number of requests, except for the control route and the configuration."""
    configs: int = 0
    connections: int = 0
    """Connections with at least one request."""
    most_in_flight: int = 0
    refused: int = 0
    faults: int = 0
    confirmed: int = 0
    """Responses 304, because the request had the ETag of the table."""
    received: int = 0
    """Bytes of requests."""
    sent: int = 0
    """Bytes of responses."""
    late: float = 0.0
    """Total delay of responses beyond the latency, in seconds."""
    cpu: float = field(default_factory=lambda: -time.process_time())
    """CPU seconds of the stub itself; begins as the negative clock, completed by `closed`."""

    def closed(self) -> dict[str, float]:
        """Returns the current counts."""
        return {**asdict(self), "cpu": self.cpu + time.process_time()}


class Catalog:
    """State that all connections share: the switches, the counts and the pending responses."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rendered: dict[tuple[bytes, int], bytes] = {}
        self._held: deque[tuple[float, Connection, bytes]] = deque()
        self._queued: deque[tuple[Connection, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._in_flight = 0
        self.set(Switches())

    def set(self, switches: Switches) -> None:
        """Sets the switches, and resets the counts."""
        self.switches = switches
        self.counts = Counts()
        self.seen: set[Connection] = set()
        self._random = random.Random(switches.seed)
        self._tokens, self._filled_at = switches.rate, time.monotonic()
        self._faulty = switches.share_503 + switches.share_429 + switches.share_cut > 0

    def request(self, connection: "Connection", target: bytes) -> None:
        """Handles a request; the response is sent when it is due."""
        if target.startswith(b"/v1/config"):
            self.counts.configs += 1
            connection.reply(answer(target.decode()))
            return
        self.counts.requests += 1
        self.seen.add(connection)
        switches = self.switches
        if switches.cap and self._in_flight >= switches.cap:
            self.counts.refused += 1
            connection.reply(refusal(switches.cap_status, switches.retry_after))
            return
        if switches.rate and not self._take_token():
            self.counts.refused += 1
            connection.reply(refusal(429, switches.retry_after))
            return
        key = target, switches.more_columns
        content = self._fault() if self._faulty else None
        if content is None:
            if connection.knows_tag:
                self.counts.confirmed += 1
                content = UNCHANGED
            else:
                content = self._rendered.get(key)
        if content is None:
            content = self._rendered[key] = answer(target.decode(), switches.more_columns)
        if switches.queue and self._in_flight >= switches.queue:
            self._queued.append((connection, content))
        else:
            self._serve(connection, content)

    def _take_token(self) -> bool:
        now, rate = time.monotonic(), self.switches.rate
        self._tokens = min(rate, self._tokens + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _fault(self) -> bytes | None:
        """Returns an injected fault; empty for a closed connection, None for a normal response."""
        switches = self.switches
        draw = self._random.random()
        for share, content in (
            (switches.share_cut, b""),
            (switches.share_503, refusal(503, switches.retry_after)),
            (switches.share_429, refusal(429, switches.retry_after)),
        ):
            if draw < share:
                self.counts.faults += 1
                return content
            draw -= share
        return None

    def _serve(self, connection: "Connection", content: bytes) -> None:
        self._in_flight += 1
        self.counts.most_in_flight = max(self.counts.most_in_flight, self._in_flight)
        if self.switches.latency == 0:
            self._finish(connection, content)
            return
        # All responses have the same latency, so they are due in the order of arrival, and one timer is enough. The
        # loop's own clock may have a resolution of a millisecond, which would shorten the latency.
        self._held.append((time.monotonic() + self.switches.latency, connection, content))
        if self._timer is None:
            self._timer = self._loop.call_later(self.switches.latency, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        while self._held and self._held[0][0] <= now:
            due, connection, content = self._held.popleft()
            self.counts.late += now - due
            self._finish(connection, content)
        # A timer may fire up to a millisecond early; a shorter wait would be repeated until the response is due.
        self._timer = self._loop.call_later(max(self._held[0][0] - now, 0.001), self._tick) if self._held else None

    def _finish(self, connection: "Connection", content: bytes) -> None:
        self._in_flight -= 1
        connection.reply(content)
        if self._queued and self._in_flight < self.switches.queue:
            self._serve(*self._queued.popleft())


class Connection(asyncio.Protocol):
    """One client connection: splits the bytes into requests, including pipelined ones and bodies."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self.knows_tag = False
        """Whether the current request has the ETag of the tables."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    def reply(self, content: bytes) -> None:
        """Sends a response; an empty one closes the connection instead."""
        if self._transport is None:
            return
        if content:
            self._catalog.counts.sent += len(content)
            self._transport.write(content)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            method, target, headers = data[:end].split(b" ", 2)
            after = end + 4 + (0 if method == b"GET" else content_length(headers))
            if after > len(data):
                break
            data = data[after:]
            self._catalog.counts.received += after
            self.knows_tag = _TAG in headers
            if target.startswith(CONTROL):
                self._control(method, target.decode())
            else:
                self._catalog.request(self, target)
        self._rest = data

    def _control(self, method: bytes, target: str) -> None:
        if method == b"POST":
            self._catalog.set(Switches.parse(target.partition("?")[2]))
        counts = self._catalog.counts
        counts.connections = len(self._catalog.seen)
        self.reply(render(200, counts.closed()))


_TAG = TAG.encode()


def content_length(headers: bytes) -> int:
    """Returns the length of a request's body; 0 if there is no such header."""
    _, found, rest = headers.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


def fast_loop() -> asyncio.AbstractEventLoop:
    """Returns uvloop's event loop if it is installed, otherwise asyncio's."""
    if importlib.util.find_spec("uvloop"):
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
        return loop
    return asyncio.new_event_loop()


async def serve() -> None:
    """Serves on a free port of the loopback interface until standard input ends."""
    loop = asyncio.get_running_loop()
    catalog = Catalog(loop)
    server = await loop.create_server(lambda: Connection(catalog), "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=fast_loop) as runner:
        runner.run(serve())
