"""The documentation: its code prints the documented output, and its tables contain every property."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lance_namespace import CreateTableIndexRequest
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError

import lance_ns_async.spark
import lance_ns_async.testing
from lance_ns_async import DirNamespace, Namespace, registry
from lance_ns_async.operations.indexes import SCALAR_TYPES, VECTOR_TYPES
from tests.documentation import catalogs
from tests.documentation.catalogs import CATALOGS, shell_pages
from tests.documentation.pages import CODE_COLUMNS, PAGES, Page, pages
from tests.ecosystem import pages_elsewhere
from tests.support.reader import Reader, comparable, stand_ins
from tests.support.rooms import ROOT
from tests.support.spark import SPARK

pytestmark = pytest.mark.long

REQUIRED = {impl: dict(entry.example) for impl, entry in registry.BACKENDS.items()} | {
    "glue": {"assume_role_arn": "arn:aws:iam::123456789012:role/reader"}
}
"""Properties that are required by every connection."""

MARKS: Mapping[str, Sequence[Any]] = dict.fromkeys(("index.md", "spark.md", "spark-writes.md"), SPARK)
WITH_CODE = [pytest.param(page, id=page.name, marks=MARKS.get(page.name, ())) for page in pages() if page.runs]


@pytest.fixture
def stands_for(
    page: Page, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mapping[str, str]]:
    """Returns replacements for the working directory and the catalogs of a page."""
    if page.name in MARKS:
        request.getfixturevalue("shared_spark")
    monkeypatch.chdir(tmp_path)
    with stand_ins(page.blocks()) as servers:
        yield {"/home/you": str(tmp_path), **servers}


@pytest.mark.parametrize("page", WITH_CODE)
async def test_the_code_of_a_page_prints_what_the_page_shows(page: Page, stands_for: Mapping[str, str]) -> None:
    reader = Reader(page, stands_for)
    for block, following in pairwise([*page.blocks(), None]):
        # The tests of examples run those that are included.
        if block is not None and block.included is None:
            printed = await reader.printed(block)
            if block.is_run:
                shown = following.source if following is not None and following.is_output else block.shown
                assert (reader.status, printed) == (0, comparable(shown)), f"{page.name}:{block.line}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_output_follows_the_code_that_prints_it(page: Page) -> None:
    for block, following in pairwise([None, *page.blocks()]):
        if following is not None and following.is_output:
            assert block is not None and block.language == "python" and block.not_run is None, following.line


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_code_fits_beside_the_side_bars(page: Page) -> None:
    # Text is what programs print, as wide as they print it.
    blocks = [block for block in page.blocks() if block.language != "text"]
    written = [
        (block.line + number, line)
        for block in blocks
        for number, line in enumerate(block.source.splitlines())
        if block.language != "console" or line.startswith("$ ")
    ]
    assert [(page.name, number, line) for number, line in written if len(line) > CODE_COLUMNS] == []


def test_what_is_run_apart_and_every_named_test_exists() -> None:
    blocks = {(page.name, block.apart) for page in pages() for block in page.blocks() if block.apart is not None}
    assert blocks == {(page.name, page.package) for page in pages_elsewhere.ALL}
    texts = [path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *PAGES.rglob("*.md"))]
    named = {name for text in texts for name in re.findall(r"`(tests/[\w/.]+)`", text)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_catalog_command_and_class_path_is_documented() -> None:
    assert {page.name for page in pages() if page.name.startswith("catalogs/")} == {p.name for p in CATALOGS.values()}
    assert Page(catalogs.PAGE).text == catalogs.written(), "run: python -m tests.documentation"
    stored = {name: Page(name).text for name in shell_pages()}
    assert stored == shell_pages(), "run: python -m tests.documentation"
    named = {name for name in lance_ns_async.__all__ if name.endswith("Namespace")} - {"AsyncNamespace", "Namespace"}
    assert set(re.findall(r"\| `lance_ns_async\.(\w+)` \|", Page("pylance.md").text)) == named


def test_what_the_package_itself_finds_wrong_reads_as_the_page_of_errors_shows(tmp_path: Path) -> None:
    iceberg = {"endpoint": "https://catalog.example.com"}
    shown = Page("errors.md").text.splitlines()
    with pytest.raises(InvalidInputError) as raised:
        Namespace.connect("iceberg", {"max_retires": "5"})
    assert str(raised.value) in shown
    with Namespace.connect("iceberg", iceberg) as ns, pytest.raises(InvalidInputError) as raised:
        ns.describe_table({"id": ["orders"]})
    assert str(raised.value) in shown
    with DirNamespace(root=str(tmp_path)) as ns, pytest.raises(NamespaceNotFoundError) as missing:
        ns.declare_table({"id": ["sales", "orders"]})
    assert str(missing.value) in shown


def test_the_page_of_operations_names_every_type_of_index_and_every_setting() -> None:
    text = Page("operations.md").text
    settings = set(CreateTableIndexRequest.model_fields) - {"identity", "context", "branch", "id", "column"}
    assert [name for name in (*VECTOR_TYPES, *SCALAR_TYPES, *sorted(settings)) if f"`{name}`" not in text] == []


# The directory's table has all errors of pylance, most of which no other code raises.
@pytest.mark.parametrize("impl", [impl for impl in CATALOGS if impl != "dir"])
def test_every_error_of_a_catalog_is_explained(impl: str) -> None:
    explained = Page("errors.md").text
    assert [error for error in set(registry.load(impl).errors.values()) if f"`{error.__name__}`" not in explained] == []


@pytest.mark.parametrize(
    "package", [lance_ns_async, lance_ns_async.spark, lance_ns_async.testing], ids=lambda package: package.__name__
)
def test_every_public_name_is_in_the_reference(package: ModuleType) -> None:
    text = "\n".join(page.text for page in pages() if page.name.startswith("reference/"))
    documented = set(re.findall(r"^(?:#+ )?::: (\S+)$", text, re.MULTILINE))
    names = {path.rpartition(".")[2] for path in documented}
    # A module in the reference documents all its classes.
    missing = [name for name in package.__all__ if name not in names]
    assert [name for name in missing if getattr(package, name).__module__ not in documented] == []


@pytest.mark.parametrize("impl", CATALOGS)
def test_a_catalogs_page_names_every_property_and_its_default(impl: str) -> None:
    catalogs.check_properties(CATALOGS[impl], registry.load(impl).settings, REQUIRED[impl])
