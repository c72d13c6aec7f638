"""Links the errors of the methods in the reference to the table of errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_PAGE = "errors.md"
_ROW = re.compile(r"<tr>\n<td>[\d, ]+</td>\n<td>(.*?)</td>", re.DOTALL)
_NAME = re.compile(r"<code>(\w+Error)</code>")
_RAISED = re.compile(r"^( +)<code>(\w+Error)</code>$", re.MULTILINE)


def on_page_content(html: str, page: Any, config: Any, **_: Any) -> str:
    """Adds anchors to the errors in the table, and links to them to the reference."""
    if page.file.src_uri == _PAGE:
        return _ROW.sub(lambda row: _NAME.sub(r'<code id="\1">\1</code>', row[0]), html)
    if not page.file.src_uri.startswith("reference/"):
        return html
    names = set(_explained(config.docs_dir))

    def link(raised: re.Match[str]) -> str:
        indent, name = raised.groups()
        if name not in names:
            return raised[0]
        return f'{indent}<a href="../../errors/#{name}"><code>{name}</code></a>'

    return _RAISED.sub(link, html)


def _explained(folder: str) -> Iterable[str]:
    with open(f"{folder}/{_PAGE}", encoding="utf-8") as page:
        rows = [line.split("|")[2] for line in page if re.match(r"\| \d", line)]
    return re.findall(r"`(\w+Error)`", " ".join(rows))
