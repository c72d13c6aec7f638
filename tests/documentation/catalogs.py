"""The table of catalogs on the first page, made from the registry and the heads of the catalogs' pages."""

from __future__ import annotations

import re

from lance_ns_async import registry
from tests.documentation.pages import Page

PAGE = "index.md"

CATALOGS = {impl: Page(f"catalogs/{impl}.md") for impl in registry.BACKENDS}
"""The page of each catalog, by the name of its backend."""

_BLOCK = re.compile(r"(<!-- catalogs -->\n).*(<!-- /catalogs -->)", re.DOTALL)


def table() -> str:
    """Returns the table of catalogs."""
    lines = ["| catalog | connect with | tested on |", "|---|---|---|"]
    for impl, page in CATALOGS.items():
        name = ", ".join(filter(None, [f"[{page.title}]({page.name})", page.head.get("note")]))
        lines.append(f'| {name} | `"{impl}"` | {page.head["tested_on"]} |')
    return "\n".join([*lines, "", ""])


def written() -> str:
    """Returns the page with the table in it."""
    return _BLOCK.sub(lambda block: f"{block[1]}{table()}{block[2]}", Page(PAGE).text)
