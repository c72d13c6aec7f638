"""Roots: valid values, and the locations of tables below them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.namespace import DirectoryNamespace
from lance_namespace.errors import InternalError, InvalidInputError

from lance_ns_async import TableId, registry
from lance_ns_async.storage import locations

pytestmark = [pytest.mark.bare, pytest.mark.environment]
ROOTS: Mapping[str, Mapping[str, str]] = {
    "dir": {},
    "glue": {},
    "hive3": {},
    "iceberg": {"endpoint": "http://127.0.0.1:1"},
    "polaris": {"endpoint": "http://127.0.0.1:1"},
    "unity": {"endpoint": "http://127.0.0.1:1", "catalog": "c"},
}
"""The catalogs whose tables may be below a root, with their other properties."""

NOT_MEANT = [
    *(("", "it is empty; use a path"), (" ", "it is empty; use a path"), ("s3:/bucket/lake", "has two slashes")),
    *(("s3:bucket/lake", "has two slashes"), ("file:/data", "has two slashes")),
    *(("anything:/data", "has two slashes"), ("file://data/lake", "has three slashes"), ("s3://", "has no bucket")),
    ("s3:///lake", "has no bucket"),
    ("foo://bucket/lake", r"unknown scheme 'foo', known are s3, .*, file, "),
    ("s3n://bucket/lake", r"unknown scheme 's3n', did you mean s3\?"),
]


@pytest.mark.parametrize(("root", "message"), NOT_MEANT)
@pytest.mark.parametrize("impl", ROOTS)
def test_a_root_that_cannot_be_meant_is_refused_when_connecting(impl: str, root: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"^{impl} properties: root: .*{message}"):
        registry.load(impl).settings.parse({**ROOTS[impl], "root": root})


@pytest.mark.parametrize("impl", ROOTS)
def test_a_file_is_no_root_and_nothing_is_below_it(impl: str, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.touch()
    for root in (str(file), f"{file}/below/it", file.as_uri(), f"file://localhost{file}"):
        with pytest.raises(InvalidInputError, match=rf"root: {file} is a file, not a directory$"):
            registry.load(impl).settings.parse({**ROOTS[impl], "root": root})


@pytest.mark.parametrize(
    "root",
    [
        *("lake", "~/lake", "/none/yet", "C:/lake", "./lake:v2", "lake:v2", "é b%20c", "lake/s3:/x"),
        *("file:///none/yet", "file://localhost/none/yet", "FILE:///none/yet", "memory://", "shared-memory://x"),
        *("s3://bucket", "S3://bucket/lake", "hf://datasets/a/b", "abfss://c@account.dfs.core.windows.net/lake"),
    ],
)
def test_any_other_is_taken_as_it_is(root: str) -> None:
    assert locations.checked_root(root) == root


def test_the_schemes_are_those_that_lance_knows() -> None:
    connect: Any = DirectoryNamespace
    with pytest.raises(InternalError) as raised:
        connect(root="unheard-of://bucket")
    match = re.search(r"Valid schemes: ([a-z0-9+, -]+)", str(raised.value))
    assert match is not None and sorted(match[1].split(", ")) == sorted(locations.SCHEMES)


@pytest.mark.parametrize(
    ("root", "location"),
    [
        ("s3://bucket/lake/", "s3://bucket/lake/a/t~2F1"),
        ("/data", "file:///data/a/t~2F1"),
        (None, f"{Path.cwd().as_uri()}/a/t~2F1"),
    ],
)
def test_a_table_lies_below_the_root_by_its_names(root: str | None, location: str) -> None:
    assert locations.default_location(root, TableId(["a", "t/1"])) == location


@pytest.mark.parametrize("end", ["", ".lance"])
def test_folder_names_of_long_names_are_cut_and_stay_distinct(tmp_path: Path, end: str) -> None:
    names = [f"{name}{end}" for name in ("数" * 27, "数" * 29, f"{'数' * 29}b", "~" * 300, "x" * 240)]
    places = [locations.default_location(str(tmp_path), TableId([name, name])) for name in names]
    for place in (*places, *map(locations.unique_location, places)):
        Path(place.removeprefix("file://")).mkdir(parents=True)
    assert places[0].endswith(f"{'~E6~95~B0' * 27}{end}") and len(set(places)) == len(names)


@pytest.mark.parametrize("place", ["file:///data/{}/t", "/data/{}/t", "file:///data/%C3%A9{}/t", "file:/data/{}"])
def test_local_names_have_at_most_255_bytes(place: str) -> None:
    spare = 2 if "%C3" in place else 0
    locations.check_location("table t", place.format("x" * (255 - spare)))
    for length in (256, 600):
        with pytest.raises(InvalidInputError, match=rf"name of {length + spare} bytes, .* at most 255; shorten it"):
            locations.check_location("table t", place.format("x" * length))
    locations.check_location("table t", f"s3://bucket/{'x' * 600}/t")


def test_a_location_beside_another_one_does_not_grow() -> None:
    first = locations.location_beside("s3://b/n/t.lance/")
    second = locations.location_beside(first)
    assert re.fullmatch(r"s3://b/n/t-[0-9a-f]{12}\.lance", first) and first != second
    assert len(second) == len(first) and locations.location_beside("/n/t").startswith("/n/t-")


NAMES = st.sampled_from(
    ["x", "y", "data", "_versions", "x-3f9a01c2b7d4", "x-3f9a01c2b7d4.lance", "x.lance", "a b", "~", "%"]
)
IDS = st.lists(NAMES, min_size=1, max_size=4).map(TableId)


@given(IDS, IDS)
def test_unique_locations_of_different_tables_never_contain_each_other(one: TableId, other: TableId) -> None:
    first, second = (locations.unique_location(locations.default_location("s3://bucket", id)) for id in (one, other))
    assert not f"{second}/".startswith(f"{first}/") and not f"{first}/".startswith(f"{second}/")


@given(IDS)
def test_a_location_without_its_suffix_is_the_predictable_one(id: TableId) -> None:
    predictable = locations.default_location("s3://bucket", id)
    assert locations.without_suffix(locations.unique_location(predictable)) == predictable
