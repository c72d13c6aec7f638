"""The page of the toy: its code runs, and its table has every property."""

from __future__ import annotations

from pathlib import Path

from lance_ns_async import registry
from tests.contract.site import Site
from tests.documentation.catalogs import check_properties
from tests.documentation.pages import Page
from tests.support.reader import Reader
from tests.toy.conftest import ROW

PAGE = Page(str(Path(__file__).with_name("shelf.md")))


def test_the_page_names_every_property(site: Site) -> None:
    check_properties(PAGE, registry.load(site.impl).settings, dict(ROW.example))


async def test_the_code_prints_what_the_page_shows(site: Site) -> None:
    reader = Reader(PAGE, {ROW.example["endpoint"]: site.properties["endpoint"]})
    code, output = PAGE.blocks()
    assert await reader.printed(code) == output.source.strip()
