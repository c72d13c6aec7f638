"""Rows, columns and versions in the browser, and what a token without rights sees of them."""

from __future__ import annotations

import io
import wave
from collections.abc import AsyncIterator, Callable
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import lance_namespace as spec
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client.models.add_columns_entry import AddColumnsEntry

from lance_ns_async.gateway.explorer.rows import profile
from lance_ns_async.gateway.mounts import MountedNamespace
from lance_ns_async.gateway.rights import OWNER, GrantedNamespace, Principal
from lance_ns_async.model import TableId
from tests.support.lake import lake, stream
from tests.unit.gateway.test_explorer import Browser, address, browsing, links, reading


def sound() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as it:
        it.setparams((1, 1, 8000, 0, "NONE", ""))
        it.writeframes(b"\x80" * 80)
    return file.getvalue()


VALUES = pa.table(
    {
        "id": range(50),
        "text": [f"text-{i:02}" for i in range(50)],
        "vector": pa.array([[float(i), 0.0] for i in range(50)], pa.list_(pa.float32(), 2)),
        "sound": [sound()] * 50,
        "<b>": [None] * 50,
    }
)
WIDE = pa.table({f"column-{i}": [i] for i in range(300)})


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    """The browser of a token that may read `n.*`: `n.t` has three versions and a branch."""
    async with lake(tmp_path) as stored:
        await stored.ns.create_namespace(["hidden"])
        for id, rows in ((["n", "t"], VALUES), (["n", "wide"], WIDE), (["hidden", "t"], VALUES)):
            await stored.create(id, rows)
        id = ["n", "t"]
        await stored.ns.create_table_branch(spec.CreateTableBranchRequest(id=id, name="trial"))
        added = spec.AlterTableAddColumnsRequest(
            id=id, new_columns=[AddColumnsEntry(name="twice", expression="id * 2")]
        )
        await stored.ns.alter_table_add_columns(added)
        await stored.ns.insert_into_table(spec.InsertIntoTableRequest(id=id), stream(pa.table({"id": [99]})))
        await stored.ns.declare_table(spec.DeclareTableRequest(id=["n", "declared"]))
        async with reading(stored, tmp_path) as browser:
            yield browser


async def look(browser: Browser, page: str = "table", id: tuple[str, ...] = ("n", "t"), **fields: Any) -> str:
    response = await browser.get(f"{address(page, *id)}&{urlencode(fields, doseq=True)}")
    assert response.status_code == 200 and "<b>" not in response.text
    return unescape(response.text)


def ids(page: str) -> list[str]:
    """Returns the texts of the rows that a page shows."""
    section = page.partition('id="rows"')[2].partition("</section>")[0]
    return [it.partition("<")[0] for it in section.split("<td><bdi>text-")[1:]]


async def test_rows_have_pages_order_filter_and_columns(browser: Browser) -> None:
    first = await look(browser)
    assert "Rows 1 to 20 of 51" in first and ids(first)[::19] == ["00", "19"]
    (following,) = (it for it in links_of(first, "table") if "skip=20" in it)
    second = unescape((await browser.get(following)).text)
    assert ids(second)[0] == "20" and any("skip" not in it for it in links_of(second, "table"))
    assert ids(await look(browser, sort="id", down=1, skip=1))[0] == "49"
    assert "99" in (last := await look(browser, at=51, sort="id")) and "Rows 51 to 51 of 51" in last and "▲" in last
    assert 'name="sort" value="id"' in last
    assert "Rows 1 to 20 of 31 that match" in await look(browser, filter="id < 31")
    assert ids(await look(browser, filter="id % 10 = 3 and text > 'text-1'", sort="text", down=1)) == [
        "43",
        "33",
        "23",
        "13",
    ]
    assert ids(await look(browser, find="[7, 0]", vector="vector"))[0] == "07"
    # The filter selects before the search, which would find the first rows.
    assert ids(await look(browser, find="[0, 0]", filter="id > 30"))[:2] == ["31", "32"]
    chosen = await look(browser, columns=["id", "none"])
    assert not ids(chosen) and "Columns (1 of 6)" in chosen
    for fields, message in (
        ({"filter": "id >"}, "Invalid"),
        ({"filter": "repeat(text, 9) = 'a'"}, "function"),
        ({"sort": "id", "skip": 5_000}, "sorted rows are shown up to"),
        ({"sort": "none"}, "none"),
    ):
        assert 'role="alert"' in (page := await look(browser, **fields)) and message.lower() in page.lower(), fields
    assert (await browser.get(f"{address('table', 'n', 't')}&skip=-1")).status_code == 400


def links_of(page: str, kind: str) -> list[str]:
    return [it.partition('"')[0] for it in page.split('href="')[1:] if it.startswith(f"/ui/{kind}?")]


async def test_a_row_and_the_rows_like_it(browser: Browser) -> None:
    page = await look(browser, sort="id")
    row = await browser.get(links_of(page, "row")[6])
    assert "text-06" in row.text and "<h1>Row 7</h1>" in row.text and 'src="data:audio/wav;base64,' in row.text
    (like,) = links(row, "/ui/table?id=n&id=t&version=3&like=")
    nearest = unescape((await browser.get(like)).text)
    assert ids(nearest)[0] == "06" and "_distance" in nearest and parse_qs(urlsplit(like).query)["vector"] == ["vector"]
    missing = await browser.get(f"{address('row', 'n', 't')}&row=123456789012")
    assert missing.status_code == 404 and "not in version 3" in missing.text


async def test_versions_branches_and_differences(browser: Browser) -> None:
    page = await look(browser)
    assert all(part in page for part in ("Append", "+1", ">trial<"))
    old, trial = await look(browser, version=1), await look(browser, branch="trial")
    assert "of 50" in old and "Version 1." in old and "twice" not in old.partition('id="open-this-table"')[0]
    assert "of 50" in trial and "The newest version of branch" in trial
    changes = unescape((await browser.get(f"{address('changes', 'n', 't')}&from=1&to=3")).text)
    assert all(part in changes for part in ("50 to 51", ">twice<", "int64", "Append", ">99<", "Rows added</dt><dd>1<"))
    assert "&from=" not in trial and "/ui/sql?" not in trial and "VERSION+%3D%3E+1" in old
    for fields in ({"version": 9}, {"branch": "none"}, {"tag": "none"}):
        assert (await browser.get(f"{address('table', 'n', 't')}&{urlencode(fields)}")).status_code == 404
    assert (await browser.get(address("namespace", "none"))).status_code == 403
    unknown = await browser.get(address("table", "n", "tt"))
    assert unknown.status_code == 404 and address("table", "n", "t") in links(unknown, "/ui/table")
    assert (await browser.get(f"{address('changes', 'n', 't')}&from=3&to=1")).status_code == 400


async def test_wide_and_declared_tables_and_lists(browser: Browser) -> None:
    wide = await look(browser, id=("n", "wide"))
    assert wide.index('id="rows"') < wide.index('id="columns"') and "Columns (20 of 300)" in wide
    assert wide.count('data-filter="Filter columns"') == 2
    declared = await look(browser, id=("n", "declared"))
    assert declared.count("declared:") == 1 and "Open this table" not in declared and 'role="alert"' not in declared
    listed = await look(browser, "namespace", ("n",))
    assert all(part in listed for part in ("<td>51</td>", " kB</td>", "UTC", "<strong>ann</strong>: read"))


async def test_a_difference_says_what_happened_to_the_rows(tmp_path: Path) -> None:
    async with lake(tmp_path) as stored:
        await stored.create()
        dataset = await stored.dataset()
        dataset.delete("id = 1")
        dataset.update({"id": "9"}, where="id = 2")
        dataset.optimize.compact_files()
        newest = dataset.version
        async with reading(stored, tmp_path) as browser:
            for before, after, part in (
                (1, 2, "Rows deleted</dt><dd>1<"),
                (2, 3, "<h2>Rows added or updated</h2>"),
                (newest - 1, newest, "their values are the same"),
            ):
                fields: dict[str, Any] = {"from": before, "to": after}
                assert part in await look(browser, "changes", **fields)


async def test_types_have_units_if_the_table_can_be_read(tmp_path: Path) -> None:
    async with lake(tmp_path) as stored:
        await stored.create(rows=pa.table({"at": pa.array([0], pa.timestamp("ns", "UTC"))}))
        async with browsing(stored.ns) as browser:
            assert "<code>timestamp[ns, tz=UTC]<" in await look(browser)
        async with browsing(MountedNamespace({"m": stored.ns})) as browser:
            assert "<code>timestamp<" in await look(browser, id=("m", "n", "t"))


async def test_a_hint_names_no_table_that_the_token_may_not_use(tmp_path: Path) -> None:
    async with lake(tmp_path) as stored:
        await stored.create(["n", "orders"])
        ann = Principal.parse("ann", "read", ["n.order"])
        unknown = TableId(("n", "order"))
        assert await GrantedNamespace(stored.ns, ann).similar_id(unknown) is None
        assert await GrantedNamespace(stored.ns, OWNER).similar_id(unknown) == ("n", "orders")


async def test_a_vector_searches_one_of_several_columns(tmp_path: Path) -> None:
    vectors = pa.array([[float(i), 0.0] for i in range(3)], pa.list_(pa.float32(), 2))
    async with lake(tmp_path) as stored:
        await stored.create(rows=pa.table({"text": ["text-0", "text-1", "text-2"], "a": vectors, "b": vectors[::-1]}))
        async with reading(stored, tmp_path) as browser:
            page = await look(browser, find="[0, 0]", vector="b")
            assert ids(page) == ["2", "1", "0"] and "<option selected>b</option>" in page


async def test_a_token_sees_no_rows_of_other_tables(browser: Browser) -> None:
    for page in ("table", "row", "column", "changes"):
        response = await browser.get(f"{address(page, 'hidden', 't')}&row=0&column=id&from=1&to=2")
        assert response.status_code == 403 and "text-" not in response.text


async def test_a_column_shows_its_values(browser: Browser) -> None:
    page = await look(browser, "column", column="id")
    assert all(part in page for part in ("Distinct values</dt><dd>51<", "Mean</dt><dd>25.9608<", "<meter"))
    assert "Nulls</dt><dd>51<" in await look(browser, "column", column="<b>")
    assert (await browser.get(f"{address('column', 'n', 't')}&column=none")).status_code == 404


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: pa.array(["a", "b", "a", None]), [("<bdi>a</bdi>", 2), ("<bdi>b</bdi>", 1)]),
        (lambda: pa.array([True, False, True]), [("<bdi>True</bdi>", 2), ("<bdi>False</bdi>", 1)]),
        (lambda: pa.array([float("nan"), 0.5, 0.5]), [("<bdi>0.5</bdi>", 2)]),
        (lambda: pa.array([float("nan"), None]), []),
        (lambda: pa.array([2**64 - 1 - i for i in range(20)], pa.uint64()), [("<bdi>18446744073709551615</bdi>", 1)]),
        (lambda: pa.array([2**63 - 1, -(2**63), *range(20)]), [("-9.22337e+18 to ", 1)]),
        (lambda: pa.array([1.5, 1.5, float("nan")], pa.float16()), [("<bdi>1.5</bdi>", 2)]),
        (lambda: pa.array([], pa.int64()), []),
        (lambda: pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), []),
        (lambda: pa.array([b"\xff\x00"]), [('<span class="blob">2 bytes</span>', 1)]),
        (lambda: pa.array(range(20), pa.date32()), [("1970-01-01 to 1970-01-01", 1)]),
        (lambda: pa.array(range(20), pa.timestamp("us", "UTC")), [("1970-01-01 00:00:00+00:00 to ", 1)]),
        (lambda: pa.array(range(20), pa.time32("s")), [("00:00:00 to 00:00:00", 1)]),
        (lambda: pa.array(range(20), pa.duration("ms")), []),
        (lambda: pa.array(range(20)).cast(pa.decimal128(30, 2)), [("0 to 0.95", 1)]),
    ],
)
def test_profiles_of_types(make: Callable[[], pa.Array], parts: list[tuple[str, int]]) -> None:
    found = profile(pa.chunked_array([make()]))
    for (text, count), (shown, rows) in zip(parts, found.parts, strict=False):
        assert str(shown).startswith(text) and rows == count
    assert bool(parts) == bool(found.parts)


def test_a_profile_counts_values_without_a_number() -> None:
    nan, infinite = float("nan"), float("inf")
    assert profile(pa.chunked_array([[nan, nan, -infinite, 1.0, None]])).special == [("NaN", 2), ("Infinite", 1)]
