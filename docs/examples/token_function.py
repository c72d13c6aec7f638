"""Sign in with a function that returns tokens, which is called before one expires."""

import asyncio
import os
import time

from lance_ns_async import AsyncNamespace

CATALOG = {"endpoint": "https://secured.example.com"}


async def fetch_token() -> tuple[str, float]:
    """Returns a token, and when it expires; replace it by a call of your provider."""
    token = os.environ.get("CATALOG_TOKEN", "a-token")
    return token, time.time() + 3600


async def main() -> None:
    async with AsyncNamespace.connect("iceberg", CATALOG, token=fetch_token) as ns:
        await ns.create_namespace({"id": ["sales"], "mode": "exist_ok"})
        print((await ns.list_namespaces()).namespaces)


if __name__ == "__main__":
    asyncio.run(main())
