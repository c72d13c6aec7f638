"""Writes what comes from the code into the documentation: `python -m tests.documentation`. These are the tables of some
pages, and the outputs of the tutorials; the one with Spark needs Java."""

from __future__ import annotations

import asyncio

from tests.documentation import catalogs
from tests.documentation.catalogs import notebooks
from tests.documentation.pages import PAGES
from tests.support import operations, rest_wire

if __name__ == "__main__":
    pages = {**{it.PAGE: it.written() for it in (catalogs, operations, rest_wire)}, **catalogs.shell_pages()}
    for page, text in pages.items():
        (PAGES / page).write_text(text, encoding="utf-8")
    for notebook in notebooks():
        asyncio.run(notebook.update())
