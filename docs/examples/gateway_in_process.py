"""Serve a catalog in this process by the REST protocol, and use it with pylance."""

import asyncio

import lance
import lance_namespace

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import serving


def read(url: str, token: str) -> int:
    """Any client of the REST protocol can do this, also in another language."""
    properties = {"uri": url, "header.x-lance-token": token}
    client = lance_namespace.connect("rest", properties)
    dataset = lance.dataset(namespace_client=client, table_id=["sales", "day0"])
    return dataset.count_rows()


async def main() -> None:
    async with (
        AsyncNamespace.connect("dir", {"root": "lake"}) as ns,
        serving(ns, read_only=True) as gateway,
    ):
        # pylance blocks, so it gets a thread.
        print(await asyncio.to_thread(read, gateway.url, gateway.token), "rows")


if __name__ == "__main__":
    asyncio.run(main())
