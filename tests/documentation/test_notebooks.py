"""The tutorials: their cells display what is stored below them, and fit on their pages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.documentation.notebooks import Notebook, notebooks, without_varying
from tests.documentation.pages import CODE_COLUMNS
from tests.support.budget import thorough
from tests.support.spark_sessions import SPARK

MARKS: dict[str, Any] = {
    # The pages spark.md and spark-writes.md show the same calls.
    "spark.ipynb": [*SPARK, thorough],
    # The other sessions have no pandas.
    "asyncio.ipynb": pytest.mark.integration,
}


@pytest.mark.parametrize("notebook", [pytest.param(it, id=it.name, marks=MARKS.get(it.name, ())) for it in notebooks()])
async def test_cells_display_what_is_stored(notebook: Notebook) -> None:
    for cell, outputs in zip(notebook.cells, await notebook.run(), strict=True):
        stored, source = without_varying(cell["outputs"]), "".join(cell["source"])
        assert without_varying(outputs) == stored, f"{source}\nrun: python -m tests.documentation"


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda it: it.name)
def test_a_notebook_is_a_story(notebook: Notebook) -> None:
    cells = notebook.content["cells"]
    assert 8 <= len(cells) <= 15
    assert cells[0]["cell_type"] == cells[-1]["cell_type"] == "markdown"
    assert [cell["execution_count"] for cell in notebook.cells] == [*range(1, len(notebook.cells) + 1)]


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda it: it.name)
def test_code_fits_on_the_page(notebook: Notebook) -> None:
    lines = [line for block in notebook.blocks() for line in block.source.splitlines()]
    assert [line for line in lines if len(line) > CODE_COLUMNS] == []
