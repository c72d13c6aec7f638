"""Random conditions, many of which other parsers read otherwise than Lance: the answers are those of Lance."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_ns_async import AsyncNamespace
from lance_ns_async.operations.partition_pruning import may_match, must_match
from lance_ns_async.operations.partition_values import derive, divide
from lance_ns_async.spec.partitions import Partitioning, new_spec, with_field_ids
from lance_ns_async.storage.sql_bounds import Texts
from tests.support.budget import rounds

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
LIMITS = {
    str(kind): (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if pa.types.is_signed_integer(kind)
    else (0, 2**kind.bit_width - 1)
    for kind in INTEGERS
}
TIMES = [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 12, 31, 23, 30), datetime(2025, 1, 1)]

TIMES += [datetime(2025, 1, 1, 0, 0, 0, 1), datetime(2025, 2, 1, 5), datetime(1600, 2, 3), datetime(2300, 1, 1)]

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    **{
        name: (pa.type_for_alias(name), [low, low + 1, *(n for n in (-11, -1, 0, 1, 9, 10) if n >= low), 100, high])
        for name, (low, high) in LIMITS.items()
    },
    "f": (pa.float64(), [-1.5, -0.0, 0.0, 0.1, 2.0, float("inf"), float("nan")]),
    "price": (pa.decimal128(9, 2), [Decimal(it) for it in ("-0.50", "0.00", "1.00", "1.10", "9999999.99")]),
    "wide": (pa.decimal128(38, 20), [Decimal(it) for it in ("0.1", "0.10000000000000000001", "-1", "12345678")]),
    "s": (pa.string(), ["", "a", "A", "ab", "b", "it's", "é", "s", "region", '"', "1"]),
    "a b": (pa.large_string(), ["", "a b", "x", "s"]),
    "bytes": (pa.binary(), [b"", b"\xff\x00", b"a", b"s"]),
    "date": (pa.date32(), [it.date() for it in TIMES]),
    "at": (pa.timestamp("us"), TIMES),
    "ok": (pa.bool_(), [True, False]),
}
SCHEMA = with_field_ids(pa.schema([pa.field(name, kind) for name, (kind, _) in VALUES.items()]))


def expression(name: str, sql: str, result: str) -> dict[str, Any]:
    position = SCHEMA.get_field_index(name)
    return {"field_id": f"{name}_x", "source_ids": [position], "expression": sql, "result_type": {"type": result}}


FIELDS: list[Any] = [
    *(name for name in VALUES if name != "f"),
    *(f"bucket(3, {name})" for name in VALUES if name != "f"),
    *(f"truncate({width}, {name})" for name in LIMITS for width in (1, 10, 200, 70000)),
    *("truncate(1, s)", "truncate(2, a b)", "year(date)", "month(date)", "day(date)"),
    *("year(at)", "month(at)", "day(at)", "hour(at)", "bucket(4, s, int8)", "bucket(2, at, ok)"),
    *(expression("f", "abs(col0)", "float64"), expression("int8", "sqrt(col0)", "float64")),
    expression("s", "lower(col0)", "utf8"),
]
COMPARISONS = ["=", "<>", "!=", "<", "<=", ">", ">="]
ODD = ["IS DISTINCT FROM", "IS NOT DISTINCT FROM", "==", "<=>", "+", "||", "LIKE", "NOT LIKE", "IS NULL =", "XOR", "&"]
TEXTS = ["''", "'a'", "'A'", "'ab'", "'it''s'", "'é'", "'s'", '"s"', '"a"', "'a%'", "'-- x'", "'/*'", "'\"'", "'1'"]
GENERAL = ["null", "0", "1", "-1", "1.0", "1e0", "'1'", "true", '"s"', "(1)", "99999999999999999999", "-(10)", "- 1"]


def fields_of(chosen: random.Random) -> list[Any]:
    if chosen.random() < 0.2:
        return ["year(at)", "month(at)", "day(at)", "hour(at)"][: chosen.randint(2, 4)]
    # Two widths of a column are one field.
    return list({re.sub(r"\d+, ", "", str(it)): it for it in chosen.sample(FIELDS, chosen.randint(1, 3))}.values())


class Conditions:
    """Conditions that one random generator makes."""

    def __init__(self, chosen: random.Random, names: Sequence[str]) -> None:
        self.random = chosen
        self.names = names
        """The columns of most comparisons."""

    def name(self, name: str) -> str:
        plain = [name, name, name.upper(), name.capitalize()] if name.isidentifier() else []
        if self.is_odd(30 if name in ("s", "a b") else 3):
            return f'"{name}"'
        return self.random.choice([*plain, f"`{name}`", f"`{name}`"])

    def is_odd(self, percent: int = 8) -> bool:
        return self.random.random() * 100 < percent

    def literal(self, name: str) -> str:
        kind, values = VALUES[name]
        if self.is_odd():
            return self.random.choice(GENERAL)
        value = self.random.choice(values)
        if pa.types.is_integer(kind):
            number = value + self.random.choice([-1, 0, 0, 0, 1])
            return self.random.choice([str(number)] * 6 + [f"({number})", f"cast({number} as bigint)", f"{number}.5"])
        if pa.types.is_decimal(kind):
            cast = f"as decimal({kind.precision}, {kind.scale}))"
            digits = f"{value}{self.random.choice(['', '', '00000000000000000001'])}"
            return self.random.choice([digits, f"{int(value)}", f"cast('{value}' {cast}", f"cast({value} {cast}"])
        if pa.types.is_floating(kind):
            return str(value) if value == value and abs(value) < 9 else "1e400"
        if pa.types.is_boolean(kind):
            return str(value).lower()
        if pa.types.is_binary(kind):
            return self.random.choice([f"x'{value.hex()}'", f"X'{value.hex()}'", "'a'", "'\\xff'"])
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            moment = value if isinstance(value, datetime) else datetime.combine(value, datetime.min.time())
            day, time = moment.date(), moment.isoformat(" ")
            odd = [f"date '{day:%Y-%-m-%-d}'", f"timestamp '{time}+01:00'", f"timestamp '{day}T00:00:00Z'", f"'{time}'"]
            odd += [
                *(f"timestamp '{day} 00:00:00.0000005'", "date '+12000-01-01'", "date '-0044-03-15'"),
                f"'{day}'::date",
            ]
            odd += [
                *(f"timestamp '{day}'", "date '0000-01-01'", "timestamp '9999-12-31 23:59:59'"),
                f"cast('{day}' as date)",
            ]
            usual = [f"date '{day}'", f"timestamp '{time}'"]
            return self.random.choice(odd) if self.is_odd(15) else usual[pa.types.is_timestamp(kind) ^ self.is_odd(15)]
        return self.random.choice(TEXTS)

    def value(self, name: str) -> str:
        if not self.is_odd(12):
            return self.name(name)
        column = self.name(name)
        odd = [f"({column})", f"-{column}", f"{column} + 1", f"cast({column} as bigint)", f"coalesce({column}, 1)"]
        odd += [f"case when {column} = 1 then 1 else 2 end", f"lower({column})", f"{column}::text", f"not {column}"]
        return self.random.choice(odd)

    def term(self) -> str:
        name = self.random.choice(list(VALUES) if self.is_odd(15) else self.names)
        value, choose = self.value(name), self.random.choice
        literals = [self.literal(name) for _ in range(self.random.randint(1, 3))]
        negative = choose(["", "", "not ", "NOT "])
        match self.random.randrange(12):
            case 0 | 1 | 2:
                return f"{value} {choose(COMPARISONS)} {literals[0]}"
            case 3 | 4:
                return f"{literals[0]} {choose(COMPARISONS)} {value}"
            case 5:
                return f"{value} {negative}in ({', '.join(literals)})"
            case 6 | 7:
                return f"{value} {negative}between {literals[0]} and {literals[-1]}"
            case 8:
                return f"{value} is {choose(['', 'not '])}{choose(['null', 'null', 'true', 'false'])}"
            case 9:
                return f"{value} {choose(ODD)} {literals[0]}"
            case 10:
                other = choose(
                    [f"{choose(COMPARISONS)} true", "is null", "is true", "between false and true", "= null"]
                )
                return f"{value} {choose(COMPARISONS)} {literals[0]} {other}"
        distinct = f"{self.name('ok')} is {negative}distinct from {choose(['ok', 'true', 'false'])}"
        return choose([self.name("ok"), "true", "false", distinct, distinct, "s like 'a%'", 's ilike "A"'])

    def condition(self, depth: int = 2) -> str:
        if not depth or self.is_odd(25):
            return self.term()
        one, other = self.condition(depth - 1), self.condition(depth - 1)
        operator = self.random.choice(["and", "or", "AND", "OR", "and not", "or not"])
        joined = [f"{one} {operator} {other}"] * 4 + [f"({one}) {operator} ({other})", f"not ({one})", f"not {one}"]
        joined += [f"not ({one} {operator} {other})", f"{one} or not {other}"]
        joined += [f"({one} {operator} {other})", f"({one}) is not true", f"not not {one}"]
        joined += [f"({one}) is distinct from ({other})", f"({one}) is not distinct from {other}"]
        joined += [f"{one} {operator} {other} -- x", f"{one} /* or */ {operator} {other}"] if self.is_odd(10) else []
        return self.random.choice(joined)


@cache
def rows_of(seed: int) -> tuple[pa.Table, lance.LanceDataset]:
    chosen = random.Random(seed)
    columns = [pa.array(chosen.choices([*values, None], k=16), kind) for kind, values in VALUES.values()]
    table = pa.table(columns, schema=SCHEMA).append_column("_row", pa.array(range(16)))
    return table, lance.write_dataset(table, f"memory://conditions-{seed}")


def matching(dataset: lance.LanceDataset, text: str) -> set[int] | None:
    """Returns the rows that match; None if Lance, or this package before it, rejects the condition."""
    try:
        Texts({"where": text}).check()
        return set(dataset.to_table(columns=["_row"], filter=text)["_row"].to_pylist())
    except (InvalidInputError, OSError, ValueError, RuntimeError):
        return None


@pytest.mark.parametrize(
    "where", ["not (s in ('a', 'b') and s in ('x', 'y'))", "s not in ('a') or not s in ('x', 'y')"]
)
def test_null_is_true_where_it_is_to_lance(where: str) -> None:
    rows = pa.table({"s": ["a", "x", None]})
    assert lance.write_dataset(rows, "memory://nulls").count_rows(where) == 3
    partitioning = Partitioning(with_field_ids(rows.schema), ())
    spec = new_spec(partitioning, ["s"])
    values, _ = divide(partitioning, spec, rows)
    assert may_match(where, partitioning, spec, values).to_pylist() == [True, True, True]


@settings(max_examples=rounds(25, 2500))
@given(st.randoms(use_true_random=False), st.integers(0, 9))
def test_masks_never_say_more_than_lance(chosen: random.Random, seed: int) -> None:
    partitioning = Partitioning(SCHEMA, ())
    fields = fields_of(chosen)
    spec = new_spec(partitioning, fields)
    table, dataset = rows_of(seed)
    values, parts = divide(partitioning, spec, table)
    members = [set(part["_row"].to_pylist()) for part in parts]
    conditions = Conditions(chosen, [name for field in spec.fields for name in partitioning.columns(field) if name])
    for _ in range(12):
        text = conditions.condition()
        if (rows := matching(dataset, text)) is None:
            continue
        may = may_match(text, partitioning, spec, values).to_pylist()
        must = must_match(text, partitioning, spec, values).to_pylist()
        for n, its in enumerate(members):
            assert may[n] or not its & rows, ("left out", text, fields, table.take(sorted(its & rows)).to_pylist())
            assert not must[n] or its <= rows, ("dropped", text, fields, table.take(sorted(its - rows)).to_pylist())


async def test_public_methods_answer_as_lance_does(tmp_path: Path) -> None:
    for n in range(rounds(3, 60)):
        chosen = random.Random(n)
        fields = fields_of(chosen)
        table, dataset = rows_of(n % 10)
        table = table.replace_schema_metadata(None)
        spec = new_spec(Partitioning(SCHEMA, ()), fields)
        conditions = Conditions(chosen, [SCHEMA.names[id] for field in spec.fields for id in field.source_ids])
        async with AsyncNamespace.connect("dir", {"root": str(tmp_path / str(n))}) as ns:
            await ns.partition_by(fields, schema=pa.schema([(it.name, it.type) for it in table.schema]))
            await ns.write_partitions(table)
            remaining = set(range(table.num_rows))
            for text in (conditions.condition() for _ in range(8)):
                if (rows := matching(dataset, text)) is None:
                    continue
                assert await rows_in(ns, text) == rows & remaining, (text, fields)
                before, dropped = remaining, await ns.drop_partitions(text)
                remaining = await rows_in(ns, None)
                assert before - remaining <= rows, (text, fields)
                assert (before == remaining) == (not dropped), (text, fields)


async def rows_in(ns: AsyncNamespace, where: str | None) -> set[int]:
    return set((await ns.open_partitions(where)).to_table(["_row"])["_row"].to_pylist())


async def test_what_is_in_double_quotes_drops_no_column(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        rows = pa.table({"n": [1, 2, 3], "region": ["EU", "US", None]})
        await ns.partition_by(["region"], schema=rows.schema)
        await ns.write_partitions(rows)
        assert (await ns.open_partitions("\"region\" = 'region'")).count_rows() == 3
        assert (await ns.open_partitions('"region" IS NOT NULL')).count_rows() == 3
        assert await ns.drop_partitions("\"region\" = 'EU'") == []
        assert [it.values for it in await ns.drop_partitions("`region` = 'EU'")] == [{"region": "EU"}]


async def test_a_partition_with_another_row_is_not_dropped(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        rows = pa.table({"n": [1, 2], "region": ["EU", "US"]})
        await ns.partition_by(["region"], schema=rows.schema)
        await ns.write_partitions(rows)
        (eu,) = await ns.list_partitions("region = 'EU'")
        await ns.write(eu.id, pa.table({"n": [3], "region": ["DE"]}), mode="append")
        assert await ns.drop_partitions("region = 'EU'") == []
        assert (await ns.open_partitions()).count_rows() == 3


pytestmark = pytest.mark.floors
ROWS = pa.table(
    {
        "at": pa.array([datetime(1969, 12, 31, 23, 59, 59), datetime(2025, 2, 28, 7), None], pa.timestamp("us")),
        "day": pa.array([date(1969, 12, 31), date(2025, 2, 28), None]),
        "n": pa.array([-11, 19, None], pa.int32()),
        "wide": pa.array([-11, 19, None], pa.int64()),
        "s": ["naïveté", "", None],
    }
)
PARTITIONING = Partitioning(with_field_ids(ROWS.schema), ())


def derived(field: Any, rows: pa.Table = ROWS) -> list[Any]:
    partitioning = Partitioning(with_field_ids(rows.schema), ())
    values: list[Any] = derive(partitioning, new_spec(partitioning, [field]).fields[0], rows).to_pylist()
    return values


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        *((f"{part}(at)", f"date_part('{part}', col0)") for part in ("year", "month", "day", "hour")),
        *((f"{part}(day)", f"date_part('{part}', col0)") for part in ("year", "month", "day")),
        *(("truncate(10, n)", "col0 - (col0 % 10)"), ("truncate(3, s)", "left(col0, 3)"), ("s", "col0")),
    ],
)
def test_a_transform_is_the_expression_of_the_spec(text: str, expression: str) -> None:
    field = new_spec(PARTITIONING, [text]).fields[0].to_json()
    del field["transform"]
    assert derived(text) == derived({**field, "expression": expression})


def test_a_width_may_be_larger_than_the_values() -> None:
    rows = pa.table(
        {"n": pa.array([2**64 - 1, 2**63 + 5, 7], pa.uint64()), "i": pa.array([-128, 127, None], pa.int8())}
    )
    assert derived("truncate(10, n)", rows) == [2**64 - 6, 2**63 + 2, 0]
    assert derived("truncate(200, i)", rows) == [0, 0, None]
    assert derived("truncate(100, i)", rows) == [-100, 100, None]


def test_buckets_are_those_of_murmur3() -> None:
    """The hash of "hello" is 0x248bfa47 and that of "hello, world" is 0x149bbb7f, as published for the algorithm."""
    rows = pa.table({"s": ["hello", "hello, world", None]})
    assert derived("bucket(1000000, s)", rows) == [0x248BFA47 % 1_000_000, 0x149BBB7F % 1_000_000, None]
    assert derived("bucket(97, n)") == derived("bucket(97, wide)")
    small = pa.table({"n": pa.array([200, 0], pa.uint8())})
    assert derived("bucket(97, n)", small) == derived("bucket(97, n)", small.cast(pa.schema({"n": pa.int16()})))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_numbers_are_hashed_like_their_bytes(numbers: list[int]) -> None:
    rows = pa.table({"n": numbers, "b": [number.to_bytes(8, "little", signed=True) for number in numbers]})
    assert derived("bucket(1000000007, n)", rows) == derived("bucket(1000000007, b)", rows)


def test_buckets_of_several_columns() -> None:
    """Appendix F of the published text: partitions of compatible buckets are joined without moving rows."""
    rows = pa.table({"n": pa.array([*range(-500, 500), None])})
    fine, coarse = derived("bucket(16, n)", rows), derived("bucket(8, n)", rows)
    assert set(fine) == {*range(16), None}
    assert [None if bucket is None else bucket % 8 for bucket in fine] == coarse
    rows = pa.table({"a": ["x", None, "x", None], "b": ["y", "y", None, None]})
    both, first, second, neither = derived("bucket(97, a, b)", rows)
    assert [first, second] == derived("bucket(97, b)", rows)[1:2] + derived("bucket(97, a)", rows)[2:3]
    assert neither is None and both == derived("bucket(97, s)", pa.table({"s": ["xy"]}))[0]


@pytest.mark.parametrize(
    "values",
    [
        *(pa.array([b"\x00\xff", None]), pa.array([True, False])),
        pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        *(pa.array([date(2025, 1, 1), None]), pa.array([2**64 - 1, 0], pa.uint64())),
        pa.array(["x", None], pa.large_string()),
    ],
    ids=lambda values: str(values.type),
)
def test_values_of_other_types_have_buckets(values: pa.Array) -> None:
    for value, bucket in zip(values.to_pylist(), derived("bucket(5, v)", pa.table({"v": values})), strict=True):
        assert bucket is None if value is None else bucket in range(5)


def test_rows_are_divided_by_all_fields_and_keep_their_order() -> None:
    rows = pa.table({"a": ["x", "y", "x", None, "x", None], "b": [1, 1, 2, 1, 1, 1]})
    partitioning = Partitioning(with_field_ids(rows.schema), ())
    values, parts = divide(partitioning, new_spec(partitioning, ["a", "b"]), rows)
    assert [tuple(row.values()) for row in values.to_pylist()] == [("x", 1), ("y", 1), ("x", 2), (None, 1)]
    assert parts[0].to_pylist() == [{"a": "x", "b": 1}] * 2
    assert [part.num_rows for part in parts] == [2, 1, 1, 2]


def test_removed_columns_and_bad_expressions() -> None:
    spec = new_spec(PARTITIONING, ["n", "bucket(3, n, s)"])
    without = Partitioning(pa.schema([field for field in PARTITIONING.schema if field.name != "n"]), [spec])
    rows = ROWS.drop_columns(["n"])
    assert derive(without, spec.fields[0], rows).to_pylist() == [None] * 3
    assert derive(without, spec.fields[1], rows).to_pylist() == derived("bucket(3, s)")
    with pytest.raises(InvalidInputError, match=r"partition field 'e': 'col0 / 0' failed \(.*[Dd]ivide by zero"):
        derived({"field_id": "e", "source_ids": [2], "expression": "col0 / 0", "result_type": {"type": "int32"}})
