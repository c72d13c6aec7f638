"""Copies between each two catalogs: compared by describe, and repeated without a change."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, DescribeNamespaceRequest

from lance_ns_async import AsyncNamespace, Call, NamespaceId
from lance_ns_async.fleet.copies import copy
from lance_ns_async.model import same_place
from tests.contract.site import Site
from tests.contract.sites import REAL, SITES, VARIANTS
from tests.support.budget import with_usual

REST = "rest-on-a-gateway-to-iceberg"
"""A server of the protocol in front of the catalog that adds the most properties to its tables."""

NAMES = [
    *(name for name in SITES if name not in REAL | VARIANTS.keys() and not name.startswith(("rest-", "dir-"))),
    REST,
]
"""One site of each backend."""

RUNS: list[dict[str, Any]] = [
    {"mode": "create"},
    {"mode": "create"},
    {"mode": "sync"},
    {"mode": "sync", "delete": True},
]
"""The options of each run; all after the first one must change nothing."""

_CHANGES = {
    "create_namespace",
    "declare_table",
    "declare_tables",
    "deregister_table",
    "drop_table",
    "register_table",
    "rename_table",
    "replace_table",
}
_numbers = itertools.count()

Open = Callable[[str, str], Site]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def open_site(base: Path) -> Iterator[Open]:
    """Opens a site as a source or as a target, each once; a target directory contains a source directory."""
    sites: dict[tuple[str, str], Site] = {}
    with ExitStack() as stack:

        def open(role: str, name: str) -> Site:
            if (role, name) not in sites:
                folder = base if role == "target" else base / "source"
                # A gateway may register only what is below the root of its catalog.
                if name not in ("dir", REST):
                    folder = folder / f"{role}-{name}"
                folder.mkdir(parents=True, exist_ok=True)
                sites[role, name] = stack.enter_context(SITES[name](folder))
            return sites[role, name]

        yield open


# A source and a target do not know each other's kind. In the usual run, each is a source and a target three times,
# once for its own kind.
PAIRS = list(itertools.product(NAMES, NAMES))
USUAL = [(NAMES[i], NAMES[i - j]) for i in range(len(NAMES)) for j in (0, 1, 3)]


@pytest.mark.parametrize(("source_name", "target_name"), with_usual(PAIRS, *USUAL))
async def test_each_catalog_is_copied_to_each_other(
    source_name: str, target_name: str, open_site: Open, base: Path
) -> None:
    source_site, target_site = open_site("source", source_name), open_site("target", target_name)
    name = f"home{next(_numbers):03}"
    home, copied_home = source_site.above.child(name), target_site.above.child(name)
    calls: list[Call] = []
    in_batches = target_site.impl == "dir"
    one = "register_table" if target_site.impl == "rest" else "declare_table"
    expected = {"create_namespace", "declare_tables" if in_batches else one}
    async with (
        AsyncNamespace.connect(source_site.impl, source_site.properties) as source,
        AsyncNamespace.connect(target_site.impl, target_site.properties) as target,
    ):
        await source.create_namespace(CreateNamespaceRequest(id=list(home), properties={"team": "lake"}))
        for i in range(5):
            location = (base / "source" / "data" / name / f"t{i}").as_uri()
            request = DeclareTableRequest(id=[*home, f"t{i}"], location=location, properties={"i": str(i)})
            await source.declare_table(request)
        for options in RUNS:
            with target.observe(calls.append):
                report = await copy(source, target, home, to={text(home): text(copied_home)}, **options)
            assert not report.problems, report
            assert {call.operation for call in calls} & _CHANGES == expected
            calls.clear()
            expected = set()
        described = await target.describe_tables([[*copied_home, f"t{i}"] for i in range(5)])
        originals = await source.describe_tables([[*home, f"t{i}"] for i in range(5)])
        for id, table in described.raise_for_errors().tables.items():
            original = originals.tables[home.table(id.name)]
            assert same_place(table.location, original.location)
            assert (table.properties or {})["i"] == id.name[1:]
        namespace = await target.describe_namespace(DescribeNamespaceRequest(id=list(copied_home)))
        assert (namespace.properties or {})["team"] == "lake"


def text(id: NamespaceId) -> str:
    return str(id) if id else ""
