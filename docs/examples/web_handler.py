"""Answer where a table is, as a web service of aiohttp, and ask it twice."""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace, http_status

NAMESPACE = web.AppKey("namespace", AsyncNamespace)


async def namespace(app: web.Application) -> AsyncIterator[None]:
    properties = {"root": "lake", "operation_timeout": "10s"}
    async with AsyncNamespace.connect("dir", properties) as app[NAMESPACE]:
        yield


async def describe(request: web.Request) -> web.Response:
    try:
        table = await request.app[NAMESPACE].describe_table(request.match_info["id"])
    except LanceNamespaceError as error:
        return web.json_response({"error": error.code.name}, status=http_status(error))
    return web.json_response({"location": table.location})


async def main() -> None:
    app = web.Application()
    app.cleanup_ctx.append(namespace)
    app.router.add_get("/tables/{id}", describe)
    async with TestClient(TestServer(app)) as client:  # to serve: web.run_app(app)
        for id in ("sales.day0", "sales.returns"):
            response = await client.get(f"/tables/{id}")
            print(response.status, await response.text())


if __name__ == "__main__":
    asyncio.run(main())
