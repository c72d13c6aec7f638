"""Names of tables by their folders: the inverse of default locations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async import TableId
from lance_ns_async.fleet.discovery import folder_names, original_names
from lance_ns_async.storage.locations import default_location, unique_location

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_names_of_default_locations_are_those_of_the_table(names: list[str]) -> None:
    location = unique_location(default_location("s3://lake/x", TableId(names)))
    # Whether this suffix belongs to the name or to the folder is unknown.
    expected = [*names[:-1], names[-1].removesuffix(".lance") or names[-1]]
    assert original_names(location.removeprefix("s3://lake/x/")) == expected


@pytest.mark.parametrize(
    ("path", "original", "folder"),
    [
        ("a/t.lance", ["a", "t"], ["a", "t"]),
        ("a~20b/t~20", ["a~20b", "t~20"], ["a~20b", "t~20"]),
        ("a/t-0123456789ab", ["a", "t"], ["a", "t-0123456789ab"]),
        ("a/t-0123456789ab.lance", ["a", "t"], ["a", "t-0123456789ab"]),
        ("a/t-0123456789AB", ["a", "t-0123456789AB"], ["a", "t-0123456789AB"]),
        ("a/-0123456789ab", ["a", "-0123456789ab"], ["a", "-0123456789ab"]),
        ("x/01234567_n$m$t", ["x", "n", "m", "t"], ["x", "n", "m", "01234567_t"]),
        ("01234567_t", ["01234567_t"], ["01234567_t"]),
        ("01234567_n$", ["01234567_n$"], ["01234567_n$"]),
        (".lance", [".lance"], [".lance"]),
    ],
)
def test_digits_are_removed_only_where_a_name_remains(path: str, original: list[str], folder: list[str]) -> None:
    assert (list(original_names(path)), list(folder_names(path))) == (original, folder)
