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

OUTAGE_FROM = 200
"""The request with which an outage begins: enough calls to be in full swing, and independent of the client's speed."""


@dataclass(frozen=True, slots=True)
class Switches:
    """The behaviour of the stub. Shares are of all requests, chosen by a seeded random generator."""

    latency: float = 0.0
    """Latency of each answer in seconds."""
    slow_refusals: int = 0
    """1 if refusals and faults take the latency as well; otherwise they come at once."""
    cap: int = 0
    """Maximum number of requests in flight; further requests are refused at once. 0 for no maximum."""
    cap_status: int = 503
    rate: float = 0.0
    """Requests per second that a token bucket admits; it first holds the tokens of one second. 0 for no limit.
    The stub refuses other requests with 429, as Polaris does."""
    window: int = 0
    """Maximum number of requests in each second since the switches were set; the stub refuses others with 429."""
    retry_after: str = ""
    """The Retry-After header of refusals and faults; empty for none."""
    queue: int = 0
    """Maximum number of requests in progress; further ones wait. 0 for no maximum."""
    share_503: float = 0.0
    share_429: float = 0.0
    share_cut: float = 0.0
    """The share of requests whose connection is closed without a response."""
    every_429: int = 0
    """Refuses every n-th request with 429; 0 for none."""
    outage: float = 0.0
    """Seconds from the 200th request on during which all requests are refused with 503."""
    seed: int = 0
    more_columns: int = 0
    """Number of additional columns in each loaded table, for large responses."""

    @classmethod
    def parse(cls, query: str) -> "Switches":
        """Returns the switches in a query string."""
        kinds = {name: type(value) for name, value in asdict(cls()).items()}
        return cls(**{name: kinds[name](text) for name, text in parse_qsl(query)})


@dataclass(slots=True)
class Counts:
    """Counts since the switches were last set."""

    requests: int = 0
    """Number of requests, except for the control route and the configuration."""
    configs: int = 0
    connections: int = 0
    """Connections with at least one request."""
    most_in_flight: int = 0
    """Maximum number of requests that were answered at the same time, without refused ones."""
    refused: int = 0
    """Refusals because of a cap, a rate or a window."""
    faults: int = 0
    """Refusals and closed connections that have nothing to do with the load."""
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
        self._held: deque[tuple[float, Connection, bytes, bool]] = deque()
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
        self._set_at = self._filled_at = time.monotonic()
        self._tokens = switches.rate
        self._window = self._used = 0
        self._down_until = 0.0

    def request(self, connection: "Connection", target: bytes) -> None:
        """Handles a request; the response is sent when it is due."""
        if target.startswith(b"/v1/config"):
            self.counts.configs += 1
            connection.reply(answer(target.decode()))
            return
        self.counts.requests += 1
        self.seen.add(connection)
        switches = self.switches
        status = self._fault()
        if status is None:
            status = self._refused()
        if status is not None:
            content = refusal(status, switches.retry_after) if status else b""
            if switches.slow_refusals:
                self._hold(connection, content, is_answer=False)
            else:
                connection.reply(content)
            return
        if connection.knows_tag:
            self.counts.confirmed += 1
            content = UNCHANGED
        else:
            key = target, switches.more_columns
            content = self._rendered.get(key) or b""
            if not content:
                content = self._rendered[key] = answer(target.decode(), switches.more_columns)
        if switches.queue and self._in_flight >= switches.queue:
            self._queued.append((connection, content))
        else:
            self._serve(connection, content)

    def _fault(self) -> int | None:
        """Returns the status of an injected fault; 0 for a closed connection, None for no fault."""
        switches, status = self.switches, None
        if switches.outage and self.counts.requests == OUTAGE_FROM:
            self._down_until = time.monotonic() + switches.outage
        if self._down_until and time.monotonic() < self._down_until:
            status = 503
        elif switches.every_429 and self.counts.requests % switches.every_429 == 0:
            status = 429
        else:
            draw = self._random.random()
            for share, kind in ((switches.share_cut, 0), (switches.share_503, 503), (switches.share_429, 429)):
                if draw < share:
                    status = kind
                    break
                draw -= share
        self.counts.faults += status is not None
        return status

    def _refused(self) -> int | None:
        """Returns the status of a refusal by one of the limits; None if there is room."""
        switches, status = self.switches, None
        if switches.cap and self._in_flight >= switches.cap:
            status = switches.cap_status
        elif (switches.rate and not self._take_token()) or (switches.window and not self._take_turn()):
            status = 429
        self.counts.refused += status is not None
        return status

    def _take_token(self) -> bool:
        now, rate = time.monotonic(), self.switches.rate
        self._tokens = min(rate, self._tokens + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _take_turn(self) -> bool:
        window = int(time.monotonic() - self._set_at)
        if window != self._window:
            self._window, self._used = window, 0
        self._used += 1
        return self._used <= self.switches.window

    def _serve(self, connection: "Connection", content: bytes) -> None:
        self._in_flight += 1
        self.counts.most_in_flight = max(self.counts.most_in_flight, self._in_flight)
        self._hold(connection, content, is_answer=True)

    def _hold(self, connection: "Connection", content: bytes, *, is_answer: bool) -> None:
        """Sends a response after the latency."""
        if self.switches.latency == 0:
            self._finish(connection, content, is_answer)
            return
        # All responses have the same latency, so they are due in the order of arrival, and one timer is enough. The
        # loop's own clock may have a resolution of a millisecond, which would shorten the latency.
        self._held.append((time.monotonic() + self.switches.latency, connection, content, is_answer))
        if self._timer is None:
            self._timer = self._loop.call_later(self.switches.latency, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        while self._held and self._held[0][0] <= now:
            due, connection, content, is_answer = self._held.popleft()
            self.counts.late += now - due
            self._finish(connection, content, is_answer)
        # A timer may fire up to a millisecond early; a shorter wait would be repeated until the response is due.
        self._timer = self._loop.call_later(max(self._held[0][0] - now, 0.001), self._tick) if self._held else None

    def _finish(self, connection: "Connection", content: bytes, is_answer: bool) -> None:
        self._in_flight -= is_answer
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
