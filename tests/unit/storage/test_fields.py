"""Field paths: parsed, formatted, and used by operations on columns and rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import UpdateFieldMetadataRequest, UpdateTableRequest
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError, UnsupportedOperationError

from lance_ns_async.storage import fields
from tests.support.lake import ID, Lake, lake

pytestmark = pytest.mark.environment


ROWS = pa.table({"id": [1, 2], "a b": [3, 4], "in": [{"a": 1, "d.e": 2}, {"a": 3, "d.e": 4}]})


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        await opened.create(rows=ROWS)
        yield opened


@pytest.mark.parametrize(
    ("path", "names", "canonical"),
    [
        ("id", ("id",), "id"),
        ("`id`", ("id",), "id"),
        ("a b", ("a b",), "a b"),
        ("in.`d.e`", ("in", "d.e"), "in.`d.e`"),
        ("`in`.`a`", ("in", "a"), "in.a"),
        ("`a``b`.é", ("a`b", "é"), "`a``b`.é"),
    ],
)
def test_a_path_is_read_and_written_in_one_way(path: str, names: tuple[str, ...], canonical: str) -> None:
    assert (
        fields.split_path(path) == names
        and fields.join_path(names) == canonical
        and fields.split_path(canonical) == names
    )


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "`a", "a`", "a`b`", "`a`b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^field path '.*': invalid; write e.g. a, a.b or a.`b.c`"):
        fields.split_path(path)


async def test_columns_are_updated_by_their_paths(here: Lake) -> None:
    async def update(*pairs: list[str]) -> int:
        return (await here.ns.update_table(UpdateTableRequest(id=ID, updates=list(pairs)))).updated_rows

    assert await update(["`a b`", "`a b` + 7"], ["`id`", "id * 2"]) == 2 and await update(["a b", "`a b` + 1"]) == 2
    assert await here.values("a b") == [11, 12] and await here.values("id") == [2, 4]
    with pytest.raises(InvalidInputError, match=r"^updates: `id`: duplicate column"):
        await update(["id", "1"], ["`id`", "2"])
    with pytest.raises(UnsupportedOperationError, match=r"^Not supported: updates: in.a \(.*\); update in$"):
        await update(["in.a", "1"])
    with pytest.raises(TableColumnNotFoundError, match="'no'"):
        await update(["`no`", "1"])


async def test_fields_are_annotated_by_their_paths(here: Lake) -> None:
    async def annotate(*paths: str) -> dict[str, Any]:
        updates = [{"path": path, "metadata": {"k": path}} for path in paths]
        request = UpdateFieldMetadataRequest.from_dict({"id": ID, "updates": updates})
        assert request is not None
        return (await here.ns.update_field_metadata(request)).fields or {}

    metadata = await annotate("`id`", "`a b`", "`in`.a", "in.`d.e`")
    assert metadata == {
        "id": {"k": "`id`"},
        "a b": {"k": "`a b`"},
        "in.a": {"k": "`in`.a"},
        "in.`d.e`": {"k": "in.`d.e`"},
    }
    for twice in (("id", "`id`"), ("in.a", "`in`.`a`")):
        with pytest.raises(InvalidInputError, match=r"^updates: (id|in\.a): duplicate field"):
            await annotate(*twice)
    assert (await here.dataset()).version == 2
