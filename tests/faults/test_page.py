"""The tables of faults in the documentation."""

from __future__ import annotations

from tests.documentation.pages import Page
from tests.faults import page
from tests.faults.operations import CASES
from tests.faults.table import CATALOGS


def test_the_documentation_is_current() -> None:
    assert Page(page.PAGE).text == page.render(), "run: python -m tests.faults"


def test_faults_are_unique_and_every_catalog_has_some() -> None:
    assert len(CASES) == len({(fault.name, impl) for fault, impl in CASES})
    for impl in CATALOGS:
        assert sum(result == impl for _, result in CASES) > 20, impl
