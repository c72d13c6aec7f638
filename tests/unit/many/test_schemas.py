"""The common columns and the filter of many tables."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import TableId
from lance_ns_async.many.schemas import Reader, common, differences, widest
from lance_ns_async.storage.scanning import Condition

READER = Reader(
    "read each kind by itself", "pass fewer tables", has=lambda type: type != pa.float16(), ignores_case=True
)
Schemas = list[tuple[TableId, pa.Schema]]
I64 = pa.int64()


def locate(**schemas: dict[str, pa.DataType]) -> Schemas:
    return [(TableId(["db", name]), pa.schema(list(columns.items()))) for name, columns in schemas.items()]


def read(tables: Schemas, columns: list[str] | None = None, **options: Any) -> tuple[pa.Schema, Condition | None]:
    return common(tables, columns, READER, **{"table_column": "_table", **options})


ONE = locate(t={"id": I64, "s": pa.string(), "at": pa.timestamp("us"), "Big": pa.float64(), "u": pa.uint32()})


@pytest.mark.parametrize(
    "filter",
    [
        "id > 1 AND s = 'x'",
        "ID > 1",
        "big > 1.5 and S like 'a%'",
        "at > timestamp '2024-01-01 00:00:00'",
        "u > 3",
        "true",
        "s = 'now() ; _table'",
        'id in (1, 2) or s = "x"',
    ],
)
def test_valid_filters_are_kept_as_they_are(filter: str) -> None:
    condition = read(ONE, ["s"], filter=filter)[1]
    assert condition is not None and (condition.sql, condition.types) == (filter, None)


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        (
            "idd > 1",
            r"filter 'idd > 1': no column 'idd'; did you mean 'id'\? The columns are 'id', 's', 'at', 'Big', 'u'$",
        ),
        ("nix > 1", r"no column 'nix'; The columns are 'id', 's'"),
        ("_table = 'db$t'", r"'_table' is not a column of the tables; pass fewer tables"),
        ("_rowid > 1", "_rowid is not supported, because it is not a column"),
        ("random() < 0.5", "random has another value in each task; use a literal"),
        ("at < now()", "now has another value"),
        *((it, "must not be empty") for it in ("", " -- all")),
        ("id > 1; drop", "must be one condition, without ';'"),
        ("id >", "Expected: an expression"),
        ("id", "does not return a boolean"),
        ("id = 1.5", "could not convert to literal of type 'Int64'"),
        ("at > 'soon'", "could not convert"),
        ("sum(id) > 1", "(?i)aggregate"),
        ("id > ?", "not valid in Lance's SQL"),
        ("(" * 50 + "id > 1" + ")" * 50, "brackets are nested more than 40"),
        ("id = 1" + " OR id = 1" * 10_001, "more than 10000 AND and OR"),
        (7, "must be a string"),
    ],
)
def test_invalid_filters_are_refused(filter: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        read(ONE, ["id"], filter=filter)
    assert len(str(caught.value)) < 1_000 and "/lance/rust/" not in str(caught.value)


def test_a_column_of_the_filter_must_be_the_same_in_all_tables() -> None:
    tables = locate(
        a={"id": pa.int64(), "n": pa.int32()},
        b={"id": pa.int64(), "n": pa.int64()},
        c={"id": pa.int64(), "n": pa.int64()},
        d={"id": pa.int64(), "date": pa.binary(), "n": pa.int64()},
    )
    # `date` is not a column of this filter.
    assert read(tables, ["id"], filter="id > 1 AND date '2024-01-01' < date '2024-01-02'")[1] is not None
    with pytest.raises(InvalidInputError) as caught:
        read(tables, ["id"], filter="n > 1")
    assert str(caught.value) == (
        "filter 'n > 1': 1 of 4 tables differ from db$b and 1 more in columns of the filter: db$a: column 'n' is "
        "int32, not int64. To go on, use unify='by_name', or read each kind by itself"
    )
    with pytest.raises(InvalidInputError, match=r"db\$d: column 'date' is extra"):
        read(tables, ["id"], filter="`date` is null or id = 1")
    condition = read(tables, ["id"], filter=f"n > {2**40}", unify="by_name")[1]
    assert condition is not None and condition.types is not None
    assert condition.types == pa.schema([("n", pa.int64())])
    # Types of text need no common type.
    condition = read(locate(a={"s": pa.string()}, b={"s": pa.large_string()}), filter="s = 'x'")[1]
    assert condition is not None and condition.types is None


def test_columns_of_all_tables_are_read_by_name() -> None:
    tables = locate(
        a={"z": I64, "id": pa.int32()},
        b={"id": I64, "s": pa.string()},
        c={"id": I64, "s": pa.string()},
        d={"y": pa.int8()},
    )
    assert read(tables, unify="by_name")[0] == pa.schema({"id": I64, "s": pa.string(), "z": I64, "y": pa.int8()})
    assert read(tables, ["y", "id"], unify="by_name")[0].names == ["y", "id"]
    assert read(tables, [], unify="by_name")[0] == pa.schema([])
    with pytest.raises(InvalidInputError, match=r"columns: 'nix' is not in db\$a and 3 more"):
        read(tables, ["id", "nix"], unify="by_name")
    with pytest.raises(InvalidInputError, match=r"no column 'nix'; The columns are 'z', 'id', 's', 'y'"):
        read(tables, ["id"], unify="by_name", filter="nix = 1")
    with pytest.raises(InvalidInputError, match="unify 'names': must be one of 'strict', 'by_name'"):
        read(tables, unify="names")
    with pytest.raises(InvalidInputError, match=r"the columns 'ID' of .* and 'id' of .* differ only in case"):
        read(locate(a={"ID": I64}, b={"id": I64}), unify="by_name")


def test_unreadable_columns_are_refused_in_each_mode() -> None:
    tables = locate(a={"id": I64, "h": pa.float16()}, b={"id": I64, "h": I64}, c={"a`b": I64})
    for unify in ("strict", "by_name"):
        with pytest.raises(InvalidInputError, match=r"Arrow has no type for 'h' \(halffloat\) of db\$a"):
            read(tables, unify=unify)
    with pytest.raises(InvalidInputError, match="because of the backtick in its name"):
        read(tables[2:])


def test_differences_are_those_from_most_tables() -> None:
    tables = locate(
        a={"id": I64, "s": pa.string()},
        b={"s": pa.large_string(), "id": I64},
        less={"id": I64},
        more={"id": I64, "s": pa.string(), "u": pa.uint32()},
        other={"id": pa.int32(), "s": pa.string()},
    )
    result = differences(tables, None)
    assert {str(id): str(difference) for id, difference in result.items()} == {
        "db$less": "column 's' is missing",
        "db$more": "column 'u' is extra",
        "db$other": "column 'id' is int32, not int64",
    }
    assert all(result.values()) and result[TableId(["db", "other"])].types == {"id": (pa.int32(), I64)}
    assert list(differences(tables, ["s"])) == [TableId(["db", "less"])]
    assert differences(tables[:2], None) == differences([], None) == {} and common([], None, READER)[0] == pa.schema([])


@pytest.mark.parametrize(
    ("types", "result"),
    [
        *((it, pa.int16()) for it in ([pa.int8(), pa.int16()], [pa.uint8(), pa.int8()])),
        ([pa.int32(), pa.float32()], pa.float64()),
        *((it, None) for it in ([pa.int64(), pa.float64()], [pa.uint64(), pa.int64()])),
        ([pa.null(), pa.string()], pa.string()),
        ([pa.string(), pa.large_string()], pa.large_string()),
        ([pa.binary(), pa.binary(4)], pa.binary()),
        ([pa.dictionary(pa.int32(), pa.string()), pa.string()], pa.string()),
        ([pa.timestamp("s", "UTC"), pa.timestamp("us", "Europe/Paris")], pa.timestamp("us", "UTC")),
        ([pa.timestamp("s"), pa.timestamp("us", "UTC")], None),
        ([pa.time32("ms"), pa.time64("ns")], pa.time64("ns")),
        ([pa.date32(), pa.date64()], pa.date32()),
        ([pa.duration("s"), pa.duration("ms")], pa.duration("ms")),
        ([pa.decimal128(5, 2), pa.decimal128(6, 4)], pa.decimal128(7, 4)),
        ([pa.decimal128(38, 0), pa.decimal128(38, 4)], None),
        ([pa.list_(pa.int8()), pa.large_list(pa.int32())], pa.large_list(pa.int32())),
        ([pa.list_(pa.float32(), 2), pa.list_(pa.float32(), 3)], pa.list_(pa.float32())),
        ([pa.list_(pa.float32(), 2), pa.list_(pa.float64(), 2)], pa.list_(pa.float64(), 2)),
        ([pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int16())])], pa.struct([("x", pa.int16())])),
        ([pa.struct([("x", pa.int8())]), pa.struct([("y", pa.int8())])], None),
        ([pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int32())], pa.map_(pa.string(), pa.int32())),
        ([pa.bool_(), pa.int8()], None),
        ([pa.int8(), pa.int64(), pa.int32()], pa.int64()),
        ([pa.int16(), pa.float32()], pa.float32()),
        *((it, None) for it in ([pa.int64(), pa.decimal128(30, 2)], [pa.binary(), pa.string()])),
        *((it, None) for it in ([pa.date32(), pa.timestamp("us")], [pa.decimal256(50, 0), pa.decimal128(5, 0)])),
    ],
    ids=str,
)
def test_types_are_widened_without_loss(types: list[pa.DataType], result: pa.DataType | None) -> None:
    for order in permutations(types):
        assert widest(order) == result
        tables = locate(**{f"t{n}": {"id": I64, "v": type} for n, type in enumerate(order)})
        if result is None:
            with pytest.raises(InvalidInputError, match="no type holds all values of column 'v' without loss"):
                read(tables, unify="by_name")
            with pytest.raises(InvalidInputError, match="no type holds all values of column 'v'"):
                read(tables, ["id"], filter="v is null", unify="by_name")
        else:
            assert read(tables, unify="by_name")[0].field("v").type == result
