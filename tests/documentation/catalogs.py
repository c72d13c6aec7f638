"""The table of catalogs on the first page, made from the registry and the heads of the catalogs' pages."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from lance_ns_async import registry
from lance_ns_async.settings import Settings
from tests.documentation.pages import Page

PAGE = "index.md"

CATALOGS = {impl: Page(f"catalogs/{impl}.md") for impl in registry.BACKENDS}
"""The page of each catalog, by the name of its backend."""

_BLOCK = re.compile(r"(<!-- catalogs -->\n).*(<!-- /catalogs -->)", re.DOTALL)


def table() -> str:
    """Returns the table of catalogs."""
    lines = ["| catalog | connect with | tested on |", "|---|---|---|"]
    for impl, page in CATALOGS.items():
        name = ", ".join(filter(None, [f"[{page.title}]({page.name})", page.head.get("note")]))
        lines.append(f'| {name} | `"{impl}"` | {page.head["tested_on"]} |')
    return "\n".join([*lines, "", ""])


def written() -> str:
    """Returns the page with the table in it."""
    return _BLOCK.sub(lambda block: f"{block[1]}{table()}{block[2]}", Page(PAGE).text)


def check_properties(page: Page, settings: type[Settings], required: Mapping[str, str]) -> None:
    """Asserts that a catalog's page contains every property with its default.

    Args:
        page: The page of the catalog.
        settings: Its properties.
        required: Values of the properties that every connection needs.
    """
    written = page.properties()
    assert set(written) == {f"{field}.*" if field in settings.prefixes else field for field in settings.model_fields}
    for field, default in written.items():
        _check_default(settings, required, field.removesuffix(".*"), default)


def _check_default(settings: type[Settings], required: Mapping[str, str], name: str, written: str) -> None:
    field = settings.model_fields[name]
    match written:
        case "required":
            assert field.is_required(), name
        case _ if name == "max_in_flight":
            # It is less where a process may open few files.
            assert field.default <= int(written.strip("`"))
        case "none":
            assert field.default in (None, "", {}), name
        case _:
            parsed = settings.parse({**required, name: written.strip("`")})
            assert getattr(parsed, name) == pytest.approx(field.default), name
