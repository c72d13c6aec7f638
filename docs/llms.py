"""Writes `llms.txt`, an index of all pages for language models, into the built site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_summaries: dict[str, str] = {}
"""The first sentence of each page, by its path below the folder of pages."""
_navigation: list[Any] = []

_PARAGRAPH = re.compile(r"(?m)^(?=[A-Z`\[]).+(?:\n.+)*")
_SENTENCE = re.compile(r".+?[.:](?= |$)")
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")


def on_nav(nav: Any, **_: Any) -> None:
    """Keeps the navigation, whose order and titles the index has."""
    _navigation[:] = nav.items


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Keeps the first sentence of the page."""
    _, _, body = markdown.partition("\n# ")
    paragraph = _PARAGRAPH.search((body or markdown).partition("\n")[2])
    text = " ".join(paragraph[0].split()) if paragraph else ""
    sentence = _SENTENCE.match(_LINK.sub(r"\1", text))
    _summaries[page.file.src_uri] = sentence[0].rstrip(":.") + "." if sentence else ""


def on_post_build(config: Any, **_: Any) -> None:
    """Writes the file with relative links, because the site has no fixed address."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for item in _navigation:
        lines += ["", f"## {item.title}", "", *_links(item)]
    Path(config.site_dir, "llms.txt").write_text(
        "\n".join([*lines, ""]), encoding="utf-8"
    )


def _links(item: Any) -> Iterator[str]:
    if item.is_page:
        summary = _summaries[item.file.src_uri]
        yield f"- [{item.title}]({item.url or './'})" + (
            f": {summary}" if summary else ""
        )
    for child in item.children or ():
        yield from _links(child)
