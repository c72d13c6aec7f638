"""Writes the documentation's table of faults."""

from tests.documentation.pages import PAGES
from tests.faults.page import PAGE, written

(PAGES / PAGE).write_text(written(), encoding="utf-8")
