"""The stub catalog with expiring tokens: `python -m benchmarks.soak.stub` serves like `benchmarks.support.stub`.

Tokens are revoked before they expire. Requests are then rejected until a client has requested a new token.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.support.answers import render
from benchmarks.support.stub import Catalog, Connection, fast_loop

LIFETIME = 10
"""Announced lifetime of a token in seconds."""
TAKEN_BACK_AFTER = 7.0
"""Seconds between two revocations of all tokens; requests are then rejected until a new token is requested."""
_TOKENS = b"/v1/oauth/tokens"
_REFUSAL = b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
_BODY = b'{"error":{"message":"the token has expired","type":"NotAuthorizedException","code":401}}'


class GuardedCatalog(Catalog):
    """A stub catalog that requires a token; it does not check which one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._issued = 0
        self._good_until = 0.0

    def request(self, connection: Connection, target: bytes) -> None:
        if target == _TOKENS:
            self._issued += 1
            if (now := time.monotonic()) >= self._good_until:
                self._good_until = now + TAKEN_BACK_AFTER
            token = {"access_token": f"token-{self._issued}", "token_type": "bearer", "expires_in": LIFETIME}
            connection.reply(render(200, token))
        elif time.monotonic() >= self._good_until:
            connection.reply(_REFUSAL % (len(_BODY), _BODY))
        else:
            super().request(connection, target)


@contextmanager
def running_guarded_stub() -> Iterator[str]:
    """Provides the endpoint of such a catalog in a separate process."""
    command = [sys.executable, "-m", "benchmarks.soak.stub"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


async def serve() -> None:
    """Serves on a free port of the loopback interface until standard input ends."""
    loop = asyncio.get_running_loop()
    catalog = GuardedCatalog(loop)
    server = await loop.create_server(lambda: Connection(catalog), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=fast_loop) as runner:
        runner.run(serve())
