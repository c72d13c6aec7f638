"""Writes the tables that come from the code into the documentation: `python -m tests.documentation`."""

from __future__ import annotations

from tests.documentation import catalogs, shell
from tests.documentation.pages import PAGES
from tests.support import operations, rest_wire

if __name__ == "__main__":
    for tables in (catalogs, operations, rest_wire, shell):
        (PAGES / tables.PAGE).write_text(tables.written(), encoding="utf-8")
