"""Writes the documentation's table of faults."""

from tests.faults.page import PAGE, written
from tests.pages import PAGES

(PAGES / PAGE).write_text(written(), encoding="utf-8")
