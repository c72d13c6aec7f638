"""Ids, tables and pages: valid values, their text, and immutability."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_ns_async.many.patterns import Selection
from lance_ns_async.model import DELIMITER, Id, NamespaceId, Table, TableId, is_same, same_place

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=DELIMITER), min_size=1)
KINDS = st.sampled_from([NamespaceId, TableId])


@given(KINDS, st.lists(NAMES, min_size=1))
def test_an_id_is_its_names(kind: type[Id], names: list[str]) -> None:
    id = kind(names)
    assert list(id) == names and len(id) == len(names)
    assert kind(id) == id and kind(iter(names)) == id and hash(kind(tuple(names))) == hash(id)
    assert repr(id) == f"{kind.__name__}({names!r})"


@given(KINDS, st.lists(PLAIN, min_size=1))
def test_what_is_written_is_read_back(kind: type[Id], names: list[str]) -> None:
    id = kind(names)
    assert kind(str(id)) == id and str(id).removeprefix(DELIMITER) == DELIMITER.join(names)
    assert str(id).startswith(DELIMITER) == (len(names) == 1 and "." in names[0])


@pytest.mark.parametrize(
    ("text", "names"),
    [("", []), ("$", []), ("a", ["a"]), ("a.b", ["a", "b"]), ("a$b.c", ["a", "b.c"]), ("$a.b", ["a.b"])],
)
def test_ids_are_read_and_written(text: str, names: Sequence[str]) -> None:
    assert NamespaceId(text) == NamespaceId(names)
    assert NamespaceId(str(NamespaceId(names))) == NamespaceId(names)
    if names:
        assert TableId(text) == TableId(names) == Selection.read(text).ids[0]


@given(KINDS, st.lists(NAMES, min_size=1))
def test_ids_survive_copies_and_pickles_with_their_class(kind: type[Id], names: list[str]) -> None:
    id = kind(names)
    for other in (pickle.loads(pickle.dumps(id)), copy.copy(id), copy.deepcopy(id)):
        assert other == id and type(other) is kind


@given(st.lists(NAMES, min_size=1))
def test_parents_and_children(names: list[str]) -> None:
    table, namespace = TableId(names), NamespaceId(names)
    assert table.parent.table(table.name) == table and type(table.parent.table(table.name)) is TableId
    assert type(table.parent) is NamespaceId
    child = namespace.parent.child(namespace.name)
    assert child == namespace and type(child) is NamespaceId


def test_the_root_has_no_name_and_is_its_own_parent() -> None:
    root = NamespaceId()
    assert (root.name, root.parent, str(root), len(root)) == ("", root, "$", 0) and not root


@pytest.mark.parametrize("names", [[], (), iter(())])
def test_a_table_has_a_name(names: Iterable[str]) -> None:
    with pytest.raises(InvalidInputError, match=r"table id \[\]: it needs at least the table's own name"):
        TableId(names)


@pytest.mark.parametrize("kind", [NamespaceId, TableId])
@pytest.mark.parametrize("names", [[""], ["a", ""], ["a", None], [1], [b"a"], b"ab", [["a"]]])
def test_every_name_is_a_string_that_is_not_empty(kind: Any, names: Any) -> None:
    with pytest.raises(InvalidInputError, match="every name must be a non-empty string"):
        kind(names)


def test_names_between_delimiters_are_not_empty_and_all_are_unicode_text() -> None:
    for text in ("a$", "$$a", "a$$b", "$$", "a..b", ".a"):
        for kind in (NamespaceId, TableId):
            with pytest.raises(InvalidInputError, match="non-empty"):
                kind(text)
    with pytest.raises(InvalidInputError, match="cannot be written as UTF-8"):
        TableId(["db", "\ud800"])


def test_tables_keep_their_storage_options_to_themselves() -> None:
    table = Table(TableId(["t"]), "s3://b/t", storage_options={"aws_secret_access_key": "hush"})
    assert "hush" not in repr(table) and "hush" not in str(table)
    assert (table.properties, table.version, table.managed_versioning) == (None, None, False)


def test_locations_of_hadoop_are_read_as_s3() -> None:
    for scheme in ("s3", "s3a", "s3n"):
        assert Table(TableId(["t"]), f"{scheme}://b/t").location == "s3://b/t"


def test_registrations_are_compared_by_place() -> None:
    for other in ("file:///a b/t", "file:/a%20b/t", "file://localhost/a%20b/t/", "file+uring:///a%20b/t", "/a b/t/"):
        assert same_place("/a b/t", other)
    assert same_place("s3://b/t/", "s3a://b/t") and same_place("s3://b/a%20b", "s3://b/a b")
    assert not same_place("s3://b/t", "s3://b/u") and not same_place("s3://b/t", "gs://b/t")
    assert not same_place("/a%20b/t", "/a b/t")
    one = Table(TableId(["t"]), "file:///a%20b/t.lance")
    assert is_same(one, Table(TableId(["t"]), "/a b/t.lance"))
    assert not is_same(one, Table(TableId(["t"]), "/a b/u.lance"))
