"""Pruning: no partition with a matching row is left out, and which partitions usual conditions leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lance_ns_async.operations.partition_pruning import may_match, must_match
from lance_ns_async.operations.partition_values import divide
from lance_ns_async.spec.partitions import Partitioning, new_spec, with_field_ids

pytestmark = pytest.mark.floors
SCHEMA = with_field_ids(
    pa.schema(
        [
            *(pa.field("at", pa.timestamp("us")), pa.field("day", pa.date32()), pa.field("n", pa.int32())),
            *(pa.field("price", pa.decimal128(9, 2)), pa.field("s", pa.string()), pa.field("ok", pa.bool_())),
        ]
    )
)
EXPRESSION = {"field_id": "sign", "source_ids": [2], "expression": "signum(col0)", "result_type": {"type": "float64"}}
FIELDS: Sequence[Any] = (
    *("at", "day", "n", "price", "s", "ok", "year(at)", "month(at)", "day(at)", "hour(at)", "year(day)", "month(day)"),
    *("bucket(3, n)", "bucket(2, s)", "bucket(3, n, s)", "truncate(10, n)", "truncate(1, s)", EXPRESSION),
)
TIMES = [datetime(2024, 12, 31, 23, 30), datetime(2025, 1, 1), datetime(2025, 1, 1, 0, 0, 1), datetime(2025, 2, 1, 5)]
DAYS = [date(2024, 12, 31), date(2025, 1, 1), date(2025, 2, 1)]
VALUES: dict[str, list[Any]] = {
    "at": [*TIMES, None],
    "day": [*DAYS, None],
    "n": [-11, -10, -1, 0, 1, 9, 10, None],
    "price": [Decimal("-0.50"), Decimal("1.00"), Decimal("1.10"), None],
    "s": ["", "a", "A", "ab", "b", "é", None],
    "ok": [True, False, None],
}
LITERALS: dict[str, list[str]] = {
    "at": [*(f"timestamp '{it}'" for it in TIMES), "date '2025-01-01'", "timestamp '2025-01-01 00:00:00.5'"],
    "day": [*(f"date '{it}'" for it in DAYS), "timestamp '2025-01-01 12:00:00'"],
    "n": ["-11", "-10", "-1", "0", "1", "9", "10", "(3)"],
    "price": ["-0.5", "1.0", "1.1", "1"],
    "s": ["''", "'a'", "'A'", "'ab'", "'b'", "'é'", "'aé'"],
    "ok": ["true", "false"],
}
rows_of = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}), min_size=1, max_size=12
)


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(LITERALS)))
    literals = st.sampled_from(LITERALS[name])
    # Lance compares decimals with decimals of the same scale alone, so that its errors are not of interest here.
    kind = draw(st.sampled_from(["compare", "compare", "swap", "in", "not in", "between", "null", "not null"]))
    operator = draw(st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]))
    match kind:
        case "compare":
            return f"{name} {operator} {draw(literals)}"
        case "swap":
            return f"{draw(literals)} {operator} {name.upper()}"
        case "in" | "not in":
            return f"{name} {kind} ({', '.join(draw(st.lists(literals, min_size=1, max_size=3)))})"
        case "between":
            return f"{name} between {draw(literals)} and {draw(literals)}"
    return draw(st.sampled_from(["ok", f"`{name}` is {kind}", f"n + 1 {operator} 2", f"s like '{name[0]}%'"]))


conditions = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda it: f"({it[0]}) {it[1]} ({it[2]})"),
        st.tuples(inner, st.sampled_from(["and", "or", "and not"]), inner).map(" ".join),
        inner.map(lambda it: f"not ({it})"),
        inner.map(lambda it: f"not {it}"),
    ),
    max_leaves=4,
)


@given(
    rows_of,
    st.lists(st.sampled_from(range(len(FIELDS))), min_size=1, max_size=4, unique=True),
    st.lists(conditions, min_size=4, max_size=4),
)
@example([dict.fromkeys(VALUES)], [0, 6], ["at is null", "not (at is null)", "at = null", "s not in ('a', null)"])
@example([{**dict.fromkeys(VALUES), "day": DAYS[1]}], [1], ["day <> timestamp '2025-01-01 12:00:00'"])
def test_exactly_the_matching_rows_are_kept(rows: list[dict[str, Any]], fields: list[int], texts: list[str]) -> None:
    partitioning = Partitioning(SCHEMA, ())
    spec = new_spec(partitioning, [FIELDS[n] for n in fields])
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    values, parts = divide(partitioning, spec, table)
    assert sum(part.num_rows for part in parts) == table.num_rows
    numbered = pa.concat_tables(
        part.append_column("partition", pa.array([n] * part.num_rows, pa.int64())) for n, part in enumerate(parts)
    )
    dataset = lance.write_dataset(numbered, "memory://rows")
    for text in texts:
        try:
            matching = set(dataset.to_table(columns=["partition"], filter=text)["partition"].to_pylist())
        except (OSError, ValueError):
            # It is no condition of Lance, as a comparison of a decimal with an integer.
            continue
        kept = {n for n, it in enumerate(may_match(text, partitioning, spec, values).to_pylist()) if it}
        assert matching <= kept, (text, spec.fields, [values.slice(n, 1).to_pylist() for n in matching - kept])
        others = set(dataset.to_table(columns=["partition"], filter=f"({text}) is not true")["partition"].to_pylist())
        certain = {n for n, it in enumerate(must_match(text, partitioning, spec, values).to_pylist()) if it}
        assert not others & certain, (text, spec.fields, [values.slice(n, 1).to_pylist() for n in others & certain])


NIGHT = "at between timestamp '2025-01-31 13:00:00' and timestamp '2025-02-01 01:00:00'"


def kept(by: list[Any], where: str, prune: Callable[..., pa.Array] = may_match) -> list[Any]:
    """Returns the values of the partitions of two months that a condition leaves."""
    start = datetime(2025, 1, 1)
    moments = [start + timedelta(hours=12 * n) for n in range(120)]
    rows = [{"at": at, "day": at.date(), "n": n, "s": f"u{n % 3}"} for n, at in enumerate(moments)]
    partitioning = Partitioning(SCHEMA, ())
    spec = new_spec(partitioning, by)
    values, _ = divide(partitioning, spec, pa.Table.from_pylist(rows, schema=SCHEMA))
    assert values.num_rows > 1
    remaining = values.filter(prune(where, partitioning, spec, values))
    return sorted(tuple(row.values()) if len(row) > 1 else next(iter(row.values())) for row in remaining.to_pylist())


@pytest.mark.parametrize(
    ("by", "where", "expected"),
    [
        (["month(at)"], "at = timestamp '2025-02-03 10:00:00'", [2]),
        (["year(at)", "month(at)"], "at >= timestamp '2025-02-01 00:00:00'", [(2025, 2), (2025, 3)]),
        (["year(at)", "month(at)"], "at < timestamp '2025-02-01 00:00:00'", [(2025, 1)]),
        (["year(at)", "month(at)"], "at <= timestamp '2025-02-01 00:00:00'", [(2025, 1), (2025, 2)]),
        (["year(at)", "month(at)"], "at > timestamp '2025-02-28 23:59:59.999999'", [(2025, 3)]),
        (["year(at)", "month(at)", "day(at)"], NIGHT, [(2025, 1, 31), (2025, 2, 1)]),
        # The months of a range are not in order without the year.
        (["month(at)"], "at >= timestamp '2025-02-01 00:00:00'", [1, 2, 3]),
        (["day"], "day >= date '2025-02-28' and day < date '2025-03-01'", [date(2025, 2, 28)]),
        *((["truncate(50, n)"], it, [50, 100]) for it in ("n > 60", "not (n <= 60)")),
        (["s"], "s in ('u0', 'u2')", ["u0", "u2"]),
        (["s"], "s not in ('u0', 'u2')", ["u1"]),
        (["s"], "s = 'u0' or n > 3", ["u0", "u1", "u2"]),
        (["s"], "s is null", []),
        (["s"], "length(s) = 1", ["u0", "u1", "u2"]),
        ([EXPRESSION], "n = 0", [0.0]),
        # The name of a column is plain or in backticks.
        *((["s"], it, ["u0"]) for it in ("`s` = 'u0'", "S = 'u0'")),
        (["s"], "'u1' <= (s) and length(`s`) > 1", ["u1", "u2"]),
        (["s"], "\"s\" = 'u0' and s = 'u0'", ["u0", "u1", "u2"]),
        # Lance reads all that follows FROM as one value.
        *((["s"], it, ["u0", "u1", "u2"]) for it in ("n > 3 is distinct from true and s = 'u0'", "s = 'u0' = true")),
        (["s"], "s = 'u0' -- and no more", ["u0", "u1", "u2"]),
    ],
)
def test_a_condition_leaves_the_partitions_that_may_match(by: list[Any], where: str, expected: list[Any]) -> None:
    assert kept(by, where) == expected


@pytest.mark.parametrize("operator", ["or", "and"])
def test_a_condition_may_have_thousands_of_parts(operator: str) -> None:
    compare, expected = {"or": ("=", ["u1"]), "and": ("<>", ["u0", "u2"])}[operator]
    assert kept(["s"], f" {operator} ".join(f"s {compare} 'u{n}'" for n in (1, *range(3, 3000)))) == expected


@pytest.mark.parametrize(
    "where",
    ["not (i = -9223372036854775808 and i + 1 <> 5)", "not (i between -9223372036854775807 and -12.5 and i <> 1)"],
)
def test_some_integers_are_floats_to_lance(where: str) -> None:
    """Their neighbours are equal to them."""
    schema = with_field_ids(pa.schema([pa.field("i", pa.int64())]))
    rows = pa.table({"i": [-(2**63), -(2**63) + 1, 0]}, schema=schema)
    assert lance.write_dataset(rows, "memory://smallest").count_rows(where) == 1
    partitioning = Partitioning(schema, ())
    spec = new_spec(partitioning, ["i"])
    partitions, _ = divide(partitioning, spec, rows)
    assert may_match(where, partitioning, spec, partitions).to_pylist()[2]
    assert must_match(where, partitioning, spec, partitions).to_pylist()[:2] == [False, False]


@pytest.mark.parametrize(
    ("expression", "values", "found"), [("sqrt(col0)", [-1, 4, 9], [-1]), ("100 / col0", [1, 2, 5], [0, 5])]
)
def test_an_expression_may_fail_or_be_no_number(expression: str, values: list[int], found: list[int]) -> None:
    field = {"field_id": "x", "source_ids": [2], "expression": expression, "result_type": {"type": "float64"}}
    partitioning = Partitioning(SCHEMA, ())
    spec = new_spec(partitioning, [field])
    partitions, parts = divide(partitioning, spec, pa.Table.from_pylist([{"n": it} for it in values], schema=SCHEMA))
    for n in found:
        mask = may_match(f"n = {n}", partitioning, spec, partitions).to_pylist()
        assert all(is_kept for is_kept, part in zip(mask, parts, strict=True) if n in part["n"].to_pylist())


def test_a_bucket_is_found_by_its_value_alone() -> None:
    assert len(kept(["bucket(16, n)"], "n = 5")) == 1
    assert len(kept(["bucket(16, n)"], "n in (5, 6, 7)")) <= 3
    assert len(kept(["bucket(16, n, s)"], "s = 'u1' and 7 = n")) == 1
    assert kept(["bucket(16, n)"], "n > 5") == kept(["bucket(16, n)"], "true")


@pytest.mark.parametrize(
    ("by", "where", "expected"),
    [
        (["year(at)", "month(at)"], "at < timestamp '2025-02-10 00:00:00'", [(2025, 1)]),
        (["year(at)", "month(at)"], "at < timestamp '2025-03-01 00:00:00'", [(2025, 1), (2025, 2)]),
        (["day"], "day = date '2025-01-02'", [date(2025, 1, 2)]),
        *((["s"], "s in ('u0', 'u2') and n >= 0", []), (["s"], "not (s = 'u0' or s = 'u1')", ["u2"])),
        *((["s"], "true", ["u0", "u1", "u2"]), (["s"], "n in (1, 2)", [])),
    ],
)
def test_partitions_of_which_all_rows_match(by: list[Any], where: str, expected: list[Any]) -> None:
    assert kept(by, where, must_match) == expected
