"""Writes the tables of faults in the documentation."""

from tests.documentation.pages import PAGES
from tests.faults.page import PAGE, render

(PAGES / PAGE).write_text(render(), encoding="utf-8")
