"""A stub catalog with latency, over existing tables: for Spark's connector and for a prefetch.

`python -m benchmarks.connector.stub LAKE` prints its endpoint and serves until its standard input ends. It describes
tables by the Lance REST Namespace and by Iceberg's REST catalog. `POST /stub?latency=0.02` delays each response by that
many seconds and resets the count of requests; `GET /stub` returns the count.
"""

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from benchmarks.support.answers import config, load_table


class Stub:
    """Answers describes after a latency, and counts them."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._latency = 0.0
        self._describes = 0

    def app(self) -> web.Application:
        """Returns the routes that a connector and a prefetch use."""
        app = web.Application()
        app.router.add_get("/stub", self._count)
        app.router.add_post("/stub", self._set)
        app.router.add_get("/v1/config", self._config)
        app.router.add_get("/v1/namespaces/{namespace}/tables/{table}", self._iceberg)
        app.router.add_post("/v1/table/{id}/describe", self._lance)
        return app

    async def _count(self, _: web.Request) -> web.Response:
        return web.json_response(self._describes)

    async def _set(self, request: web.Request) -> web.Response:
        self._latency = float(request.query["latency"])
        self._describes = 0
        return web.json_response(None)

    async def _config(self, _: web.Request) -> web.Response:
        return web.json_response(config([]))

    async def _iceberg(self, request: web.Request) -> web.Response:
        table = request.match_info["table"]
        loaded = load_table(request.match_info["namespace"], table)
        loaded["metadata"]["location"] = self._location(table)
        return await self._send_late(loaded)

    async def _lance(self, request: web.Request) -> web.Response:
        location = self._location(request.match_info["id"].partition("$")[2])
        return await self._send_late({"location": location, "storage_options": {}})

    async def _send_late(self, answer: object) -> web.Response:
        self._describes += 1
        # Even a sleep of 0 seconds would be a turn of the loop.
        if self._latency:
            await asyncio.sleep(self._latency)
        return web.json_response(answer)

    def _location(self, table: str) -> str:
        return str(self._lake / f"{table}.lance")


async def serve(lake: Path) -> None:
    """Serves on a free port of the loopback interface until standard input ends."""
    runner = web.AppRunner(Stub(lake).app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
