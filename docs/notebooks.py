"""Makes a page of each notebook, beside which the notebook itself can be downloaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any, **_: Any) -> None:
    """Adds a page for each notebook."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page = str(PurePosixPath(notebook.src_uri).with_suffix(".md"))
        files.append(File.generated(config, page, content=_page(notebook)))


def _page(notebook: File) -> str:
    cells = json.loads(notebook.content_string)["cells"]
    introduction, *story = map(_cell, cells)
    title, summary, *rest = introduction.split("\n\n")
    name = PurePosixPath(notebook.src_uri).name
    link = f"[Download this notebook]({name}){{ download }}"
    return "\n\n".join([title, summary, link, *rest, *story]) + "\n"


def _cell(cell: Mapping[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *_outputs(cell["outputs"])])


def _outputs(outputs: list[Mapping[str, Any]]) -> Iterator[str]:
    for output in outputs:
        data = output.get("data", {})
        if "text/html" in data:
            # A line without text would end the block.
            lines = [line for line in "".join(data["text/html"]).splitlines() if line]
            yield "\n".join(['<div class="output">', *lines, "</div>"])
        else:
            text = "".join(output.get("text") or data["text/plain"]).rstrip("\n")
            yield f'```text title="Output"\n{text}\n```'
