"""SQL and searches in the browser: rows, the rights of the token, and statements that would need too much."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import lance_namespace as spec
import pyarrow as pa
import pytest

from lance_ns_async.gateway import serving
from tests.support.lake import ROWS, lake
from tests.unit.gateway.test_explorer import Browser, address, links, reading

WIDE = pa.table({"long": ["x" * 5_000], "bytes": [b"y" * 70], "list": [list(range(3_000))], "day": [20]})


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    """The browser of a token that may read the tables `n.*`; there is also a namespace `hidden`."""
    async with lake(tmp_path) as stored:
        await stored.ns.create_namespace(["hidden"])
        for id in (["n", "t"], ["n", "a b"], ["hidden", "t"]):
            await stored.create(id)
        await stored.create(["n", "wide"], WIDE)
        async with reading(stored, tmp_path) as browser:
            yield browser


async def run(browser: Browser, text: str) -> str:
    """Returns the part of the page below the form."""
    page = await browser.get(f"/ui/sql?{urlencode({'q': text})}")
    assert page.status_code == 200 and "<b>" not in page.text
    return unescape(page.text.partition("</form>")[2].partition('<form class="sql"')[2].partition("</form>")[2])


async def test_a_statement_shows_its_rows_and_tables(browser: Browser) -> None:
    assert len(links(await browser.get("/ui/sql"), "/ui/sql?q=")) == 4
    text = await run(browser, "select _table, count(*) as rows_of_it from n.* group by all order by 1;")
    assert all(part in text for part in ("3 rows of ", "rows_of_it", ">n$wide<", address("table", "n", "t")))
    assert "The first 100 rows" in await run(browser, "from range(1000000000)")
    assert "No row matches." in await run(browser, "from n.t where id > 5")
    (link,) = links(await browser.get(address("table", "n", "a b")), "/ui/sql?q=")
    assert "red apple" in (await browser.get(link)).text
    assert "Projection" in await run(browser, "explain select id + 1 from n.t")
    cut = await run(browser, "select * from n.wide")
    assert all(part in cut for part in ("x" * 200 + "...", "70 bytes", "[0, 1, 2, ", ">20<")) and len(cut) < 5_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from hidden.t", "Permission denied: sql: hidden$t"),
        ('select (select max(id) from "hidden$t") from n.t', "Permission denied: sql: hidden$t"),
        ("with x as (from n.t join hidden.t using (id)) from x", "Permission denied: sql: hidden$t"),
        *((it, "Permission denied: sql: hidden$t") for it in ("from hidden.t at (version => 1)", "describe hidden.t")),
        ("from hidden.none", "Permission denied: sql: hidden$none"),
        ("from nearest('hidden.t', [1, 1])", "Permission denied: sql: hidden$t"),
        *((it, "no table matches 'hidden.*'") for it in ("from hidden.*", "from tables('hidden.*')")),
        ("select count(*) as n, list_distinct(['4']) from '**.t'", "1 row of "),
        ("from search('n.t', 'apple', include => null)", "multiple values for keyword argument 'include'"),
        ("select count(*) from nearest('**.t', [1, 1], columns => ['id'], k => 9) where _table like 'hidden%'", ">0<"),
        ("copy n.t to '/tmp/x'", "only SELECT statements"),
        ("from read_csv('/etc/passwd')", "the table function read_csv"),
        ("select repeat('x', 2000000000)", "the function repeat for remote callers"),
        ("select lpad('x', 2000000000, 'y')", "the function lpad"),
        ("select len(range(1000000000))", "the function range"),
        ("from nearest('n.t', list_resize([1], 1000000000))", "the function list_resize"),
        ("select string_agg(text, ',') from n.t", "the function string_agg"),
        *((it, "the type of an array") for it in ("select null::int[100000]", "select null::int[2][4000]")),
        ("with recursive r as (select 'x' s union all select s || s from r) select max(s) from r", "WITH RECURSIVE"),
        ("with a as (select text s from n.t) select " + "||".join(["s"] * 20) + " from a", "values are joined"),
        ("select *, *, *, *, *, *, *, *, * from n.t", "9 times *"),
        ("select '" + "x" * 10_000 + "'", "characters are too many"),
        ("select 1; select 2", "2 statements"),
    ],
)
async def test_a_statement_has_the_rights_of_the_token_and_limits(browser: Browser, text: str, message: str) -> None:
    shown = await run(browser, text)
    assert message in shown, shown
    assert "internal error" not in shown.lower() and "/tmp/" not in shown.replace(text, "")


async def test_rows_are_found_by_words_and_by_a_vector(tmp_path: Path) -> None:
    async with lake(tmp_path) as stored:
        await stored.create(rows=ROWS.rename_columns(["id", "text", "vector"]))
        index = spec.CreateTableIndexRequest(id=["n", "t"], column="text", index_type="FTS")
        await stored.ns.create_table_scalar_index(index)
        async with serving(stored.ns, ui=True) as gateway:
            browser = Browser(gateway)
            async with browser.client:
                await browser.sign_in()
                found = {}
                for text in ("pear", "[2, 2]", "[x]", "[" * 5_000, "[1, 2, 3]", '"><img src=x>'):
                    page = await browser.get(f"{address('table', 'n', 't')}&{urlencode({'find': text})}")
                    assert page.status_code == 200 and "<img" not in page.text
                    found[text] = unescape(page.text.partition('id="rows"')[2].partition("</section>")[0])
    assert "green pear" in found["pear"] and "red apple" not in found["pear"]
    assert found["[2, 2]"].index("[2, 2]</bdi>") < found["[2, 2]"].index("red apple") and "_distance" in found["[2, 2]"]
    assert "an example is [0.5, 1.25]" in found["[x]"] and "an example" in found["[" * 5_000]
    assert 'role="alert"' in found["[1, 2, 3]"] and "No row was found." in found['"><img src=x>']
