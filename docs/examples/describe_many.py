"""Describe many tables at once, and report each that fails."""

import asyncio

from lance_ns_async import AsyncNamespace


async def main() -> None:
    async with AsyncNamespace.connect("dir", {"root": "lake"}) as ns:
        ids = [id async for id in ns.iter_tables("sales")]
        described = await ns.describe_tables([*ids, "sales.returns"], timeout=30)
        for id, table in sorted(described.tables.items()):
            print(id, table.location)
        for id, error in described.errors.items():
            print(id, type(error).__name__)


if __name__ == "__main__":
    asyncio.run(main())
