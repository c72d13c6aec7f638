"""The documentation's table of faults is what the suite sees."""

from __future__ import annotations

from tests.documentation.pages import Page
from tests.faults import page
from tests.faults.operations import CELLS
from tests.faults.table import CATALOGS


def test_the_page_shows_what_the_suite_sees() -> None:
    assert Page(page.PAGE).text == page.render(), "run: python -m tests.faults"


def test_each_fault_is_told_once_and_each_catalog_has_its_share() -> None:
    assert len(CELLS) == len({(fault.name, impl) for fault, impl in CELLS})
    for impl in CATALOGS:
        assert sum(result == impl for _, result in CELLS) > 20, impl
