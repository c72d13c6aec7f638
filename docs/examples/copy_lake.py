"""Copy the registrations of a lake to another catalog; the data stays."""

import asyncio
import sys

from lance_ns_async import AsyncNamespace
from lance_ns_async.fleet import copy

LAKE = "/home/you/lake"
TARGET = {"endpoint": "https://catalog.example.com", "root": f"file://{LAKE}"}


async def main() -> int:
    async with (
        AsyncNamespace.connect("dir", {"root": LAKE}) as source,
        AsyncNamespace.connect("iceberg", TARGET) as target,
    ):
        report = await copy(
            source, target, "sales.*", to={"sales": "lake.sales"}, mode="sync"
        )
    for row in sorted(report.rows, key=lambda row: str(row.id)):
        print(row.id, row.outcome, row.fields["target"])
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
