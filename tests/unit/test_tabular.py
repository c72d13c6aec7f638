"""Results of many tables: text, tables for notebooks, Arrow and pandas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace import ListTableVersionsResponse
from lance_namespace.errors import TableSchemaValidationError

from lance_ns_async import DirNamespace

NAMES = [["sales", f"t{n:02}"] for n in range(25)]


@pytest.fixture(scope="module")
def ns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirNamespace]:
    root: Path = tmp_path_factory.mktemp("lake")
    with DirNamespace(root=str(root)) as namespace:
        namespace.create_namespace("sales")
        for id in NAMES:
            namespace.declare_table(id)
        namespace.write("sales.t00", pa.table({"a": [1]}), mode="overwrite")
        yield namespace


def test_the_text_of_a_result_shows_its_problems(ns: DirNamespace) -> None:
    assert repr(ns.describe_tables(NAMES)) == "BulkResult(25 tables, 0 errors)"
    first, second = repr(ns.describe_tables([*NAMES, "sales.gone"])).splitlines()
    assert first == "BulkResult(25 tables, 1 error)"
    assert second.startswith("  missing  sales$gone  Table not found: sales$gone")
    first, second = repr(ns.list_many(["sales", "nowhere"])).splitlines()
    assert first == "Listed(25 tables in 1 namespace, 1 error)" and second.startswith("  missing  nowhere  ")


def test_a_notebook_shows_counts_problems_and_an_excerpt(ns: DirNamespace) -> None:
    html = ns.describe_tables([*NAMES, "sales.<b>"])._repr_html_()
    text = re.sub(r"<style>.*</style>|<[^>]+>", "|", html, flags=re.DOTALL)
    assert "1 missing" in text and "25 ok" in text and "sales$&lt;b&gt;" in text and "... and 5 more" in text
    assert html.index("missing</span></td>") < html.index("ok</span></td>")
    assert "<th>id</th>" in html and "<th>attempts</th>" not in html and "text-align:left!important" in html
    ns.write("sales.t00", pa.table({"a": [2]}), mode="append")
    versions = ns.list_table_versions("sales.t00")
    assert "2 versions<" in versions._repr_html_() and "<td>2</td>" in versions._repr_html_()  # type: ignore[attr-defined]
    assert repr(versions).endswith(", ... 1 more])") and versions == ListTableVersionsResponse(**dict(versions))
    ns.create_table_scalar_index("sales.t00", column="a", index_type="BTREE")
    assert "<td>a_idx</td>" in ns.list_table_indices("sales.t00")._repr_html_()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"amuont": [1]}, r"column 'amuont' is only in the rows; did you mean amount\?"),
        ({"amount": [1], "zz": [1]}, "column 'zz' is only in the rows; remove it"),
        ({"amount": ["x"]}, "column 'amount' is string in the rows, but int64 in the table"),
    ],
)
def test_an_append_names_the_columns_that_differ(ns: DirNamespace, rows: dict[str, list[object]], reason: str) -> None:
    ns.write("sales.t01", pa.table({"amount": [1]}), mode="overwrite")
    with pytest.raises(TableSchemaValidationError, match=reason):
        ns.write("sales.t01", pa.table(rows), mode="append")


def test_a_result_becomes_arrow_and_pandas(ns: DirNamespace) -> None:
    table = ns.describe_tables(["sales.t00", "sales.gone"]).to_arrow()
    assert table["outcome"].to_pylist() == ["missing", "ok"]
    assert table["names"].to_pylist() == [["sales", "gone"], ["sales", "t00"]]
    assert table["location"][1].as_py() == ns.describe_table("sales.t00").location
    version = ns.open("sales.t00").version
    opened = ns.open_many(["sales.t00"]).to_arrow()
    assert opened["location"].to_pylist() == [ns.open("sales.t00").uri] and opened["version"].to_pylist() == [version]
    assert ns.list_many(["sales"]).to_arrow()["id"].to_pylist() == [f"sales${name}" for _, name in NAMES]
    pandas = pytest.importorskip("pandas")
    assert isinstance(ns.list_many(["sales"]).to_pandas(), pandas.DataFrame)
