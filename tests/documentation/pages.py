"""The pages of the documentation as readers see them: their text, and the code in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import dedent

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "pages"
CODE_COLUMNS = 88  # The columns of code that a screen of 1440 pixels has room for, beside both side bars

_FENCE = re.compile(
    r"(?:^ *<!-- (?:not run: (?P<reason>[^\n]+)|run apart: (?P<package>[\w-]+)) -->\n)?"
    r'^(?P<indent> *)```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<body>.*?)^(?P=indent)```$',
    re.MULTILINE | re.DOTALL,
)
_PART = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
_PROPERTIES = re.compile(r"^\| property \| default \| meaning \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)
_HEAD = re.compile(r"---\n(.*?)^---\n", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    """For code, the file name of a whole program; for text, `Output` if it is the output of the code before it."""
    source: str
    line: int  # The line of the page at which the source begins
    not_run: str | None  # The reason why it cannot be run in a test; None if it can
    apart: str | None  # The package that it needs, whose own tests run it; None for the usual packages

    @property
    def shown(self) -> str:
        """Returns the output of its commands that a console block contains."""
        lines = self.source.splitlines() if self.language == "console" else []
        return "\n".join(line for line in lines if not line.startswith("$ "))

    @property
    def is_code(self) -> bool:
        """Returns whether a reader can run it from the page."""
        return self.language in ("python", "console") and self.included is None

    @property
    def included(self) -> str | None:
        """The path of the file whose text replaces the block; None for a block of its own."""
        include = _PART.fullmatch(self.source.rstrip())
        return None if include is None else include[1]

    @property
    def is_run(self) -> bool:
        return self.not_run is None and self.apart is None

    @property
    def is_output(self) -> bool:
        return (self.language, self.title) == ("text", "Output")


@dataclass(frozen=True)
class Page:
    """A page, by its path below the folder of all pages."""

    name: str

    @cached_property
    def text(self) -> str:
        return (PAGES / self.name).read_text(encoding="utf-8")

    @cached_property
    def whole(self) -> str:
        """The page with the parts that it shares with others."""
        return _PART.sub(lambda part: (DOCS / "parts" / part[1]).read_text(encoding="utf-8"), self.text)

    @property
    def head(self) -> dict[str, str]:
        """The facts above the title, by name; they are not displayed."""
        head = _HEAD.match(self.text)
        return dict(line.split(": ", 1) for line in head[1].splitlines()) if head else {}

    @property
    def title(self) -> str:
        title = _TITLE.search(self.text)
        assert title is not None, self.name
        return title[1]

    @property
    def runs(self) -> bool:
        return any(block.is_code for block in self.blocks())

    def blocks(self) -> Iterator[Block]:
        for fence in _FENCE.finditer(self.text):
            line = self.text.count("\n", 0, fence.start("body")) + 1
            source, marks = dedent(fence["body"]), (fence["reason"], fence["package"])
            yield Block(fence["language"], fence["title"], source, line, *marks)

    def properties(self) -> dict[str, str]:
        """Returns the properties in the page's tables and their defaults, both as written."""
        rows = [row for table in _PROPERTIES.findall(self.whole) for row in table.splitlines()]
        return {name.strip(" `"): default.strip() for _, name, default, *_ in (row.split("|") for row in rows)}


def pages() -> list[Page]:
    return [Page(path.relative_to(PAGES).as_posix()) for path in sorted(PAGES.rglob("*.md"))]


def catalog_page(impl: str) -> Page:
    """Returns the page of a catalog; both versions of Hive have one."""
    return Page(f"catalogs/{'hive3' if impl == 'hive2' else impl}.md")
