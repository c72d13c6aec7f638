"""Pruning: which partitions may contain rows that match a condition in SQL.

A condition is read as far as it compares single columns with literals; any other part may be true in every partition.
What is not certainly read as Lance reads it says nothing.
So no partition with a matching row is left out, and the caller still filters the rows of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial, reduce
from operator import and_, or_
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import one_line, without_source
from lance_ns_async.operations.partition_values import derive
from lance_ns_async.spec.partitions import PartitionField, Partitioning, PartitionSpec
from lance_ns_async.storage.sql_bounds import tokens

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]] | bool"
"""For each partition, or for all of them, whether a condition may be true for one of its rows."""

_OPPOSITES = {"eq": "neq", "neq": "eq", "lt": "gte", "gte": "lt", "gt": "lte", "lte": "gt"}
"""The comparisons that are true where another one is false."""

_SWAPPED = {"lt": "gt", "gt": "lt", "lte": "gte", "gte": "lte"}  # The comparisons with exchanged sides.

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": pc.equal,
    "neq": pc.not_equal,
    "lt": pc.less,
    "lte": pc.less_equal,
    "gt": pc.greater,
    "gte": pc.greater_equal,
}
_STRICT = {"lt": "lte", "gt": "gte"}
"""The comparisons that are true of different values alone, and those that are true of equal values, too."""

_TIME = ("year", "month", "day", "hour")
_TIME_TYPES = {"date": pa.date32(), "timestamp": pa.timestamp("us")}
_TIME_TEXT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?)?")
"""Dates and times that all parsers read alike."""
_TIME_SIZES = (1, 13, 32, 24)
_COMPARISONS = {"=": "eq", "<>": "neq", "!=": "neq", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_ARITHMETIC = frozenset("+ - * / % || .".split())
_NO_NAMES = frozenset("and or not is in between like ilike case when then else end distinct interval".split())
_FUNCTIONS = frozenset("null current_date current_time current_timestamp localtime localtimestamp".split())
"""Words that have a value without brackets, and are no names."""


def check_condition(where: str, schema: pa.Schema) -> None:
    """Raises InvalidInputError if Lance cannot apply a condition to rows with these columns."""
    import lance

    if ("other", ";") in tokens(where):
        raise InvalidInputError(f"where {where!r}: must be one condition, without ';'")
    try:
        dataset = lance.write_dataset(pa.Table.from_batches([], schema), "memory://conditions")
        dataset.scanner(filter=where).to_table()
    except (OSError, ValueError) as e:
        raise InvalidInputError(f"where {where!r}: {one_line(without_source(str(e)))}") from e


def may_match(where: str, partitioning: Partitioning, spec: PartitionSpec, partitions: pa.Table) -> pa.Array:
    """Returns for each partition whether it may contain rows that match a condition.

    Args:
        where: A condition in Lance's SQL, which `check_condition` has checked.
        partitioning: The schema and the specs.
        spec: The version of the spec.
        partitions: A row for each partition of that version, with the columns of its fields.
    """
    return _pruned(where, partitioning, spec, partitions, _Pruner.where)


def must_match(where: str, partitioning: Partitioning, spec: PartitionSpec, partitions: pa.Table) -> pa.Array:
    """Returns for each partition whether all its rows match a condition; the arguments are those of `may_match`."""
    return pc.invert(_pruned(where, partitioning, spec, partitions, _Pruner.where_not))


def _pruned(
    where: str,
    partitioning: Partitioning,
    spec: PartitionSpec,
    partitions: pa.Table,
    prune: Callable[[_Pruner, Node], Mask],
) -> pa.Array:
    mask = prune(_Pruner(partitioning, spec, partitions), read_condition(where))
    return pa.array(np.broadcast_to(np.asarray(mask), partitions.num_rows))


@dataclass(frozen=True, slots=True)
class _Key:
    """A value of each partition that follows from the values of one column."""

    values: pa.Array
    of: Callable[[pa.Array], pa.Array]
    """Returns the value for values of the column."""
    is_exact: bool = False
    """Whether equal keys are from equal values."""
    is_ordered: bool = False
    """Whether a greater value of the column never has a smaller key."""
    is_null_safe: bool = True
    """Whether the key is null just for null."""


class _Pruner:
    """The partitions of one version of the spec."""

    def __init__(self, partitioning: Partitioning, spec: PartitionSpec, partitions: pa.Table) -> None:
        self._partitioning = partitioning
        self._schema = partitioning.schema
        self._keys: dict[str, list[_Key]] = {name: [] for name in self._schema.names}
        self._multiple: list[tuple[Sequence[str], PartitionField, pa.Array]] = []
        for field in spec.fields:
            columns = partitioning.columns(field)
            if None in columns:
                continue
            values = partitions[field.column].combine_chunks()
            names = [name for name in columns if name is not None]
            if len(names) == 1:
                self._keys[names[0]].append(self._key(field, names[0], values))
            else:
                self._multiple.append((names, field, values))
        for name, keys in self._keys.items():
            keys += self._times(spec, name, partitions)

    def _key(self, field: PartitionField, name: str, values: pa.Array) -> _Key:
        def of(constants: pa.Array) -> pa.Array:
            return derive(self._partitioning, field, self._table({name: constants}))

        return _Key(
            values,
            of,
            is_exact=field.transform == "identity",
            is_ordered=field.transform in ("identity", "truncate", "year"),
            is_null_safe=field.transform is not None,
        )

    def _times(self, spec: PartitionSpec, name: str, partitions: pa.Table) -> list[_Key]:
        """Returns a key of year, month, day and hour together, as far as all partitions have them."""
        fields = {field.transform: field for field in spec.fields if list(self._partitioning.columns(field)) == [name]}
        parts = []
        for part in _TIME:
            if part not in fields:
                break
            parts.append(fields[part])
        if len(parts) < 2:
            return []

        def together(values: Sequence[pa.Array]) -> pa.Array:
            key = values[0].cast(pa.int64())
            for size, value in zip(_TIME_SIZES[1:], values[1:], strict=False):
                key = pc.add(pc.multiply(key, size), value)
            return key

        def of(constants: pa.Array) -> pa.Array:
            rows = self._table({name: constants})
            return together([derive(self._partitioning, field, rows) for field in parts])

        return [_Key(together([partitions[field.column].combine_chunks() for field in parts]), of, is_ordered=True)]

    def _table(self, columns: dict[str, pa.Array]) -> pa.Table:
        schema = pa.schema([self._schema.field(name) for name in columns])
        return pa.table(list(columns.values()), schema=schema.with_metadata(None))

    def where(self, condition: Node) -> Mask:
        """Returns the partitions in which a condition may be true."""
        mask = self._may(condition)
        constants: dict[str, pa.Array] = {}
        for part in condition.parts if condition.kind == "and" else [condition]:
            if part.kind == "eq":
                left, right = part.parts
                constants.update(filter(None, (self._comparison(left, right), self._comparison(right, left))))
        for names, field, values in self._multiple:
            if constants.keys() >= set(names):
                rows = self._table({name: constants[name] for name in names})
                if (expected := _first(partial(derive, self._partitioning, field, rows))) is not None:
                    mask = mask & _array(_same(values, expected))
        return mask

    def where_not(self, condition: Node) -> Mask:
        """Returns the partitions in which a condition may be false or null."""
        return self._may(condition, truth=False, or_null=True)

    def _may(self, it: Node, truth: bool = True, *, or_null: bool = False, within_or: bool = False) -> Mask:
        """Returns the partitions in which a condition may be true, or else false; with `or_null` also null.

        Lance's optimizer replaces some conditions that are null by others: `x IN (1) AND x IN (2)` by false, also
        within NOT, and `x NOT IN (1) OR x NOT IN (2)` by true. So null counts as true there.
        """
        may = partial(self._may, or_null=or_null, within_or=within_or)
        or_null = or_null or (within_or and (not truth or it.kind == "neq"))
        match it.kind:
            case "not" if it.parts[0].kind in ("and", "or"):
                return may(it.parts[0], not truth, or_null=True)
            case "not":
                return may(it.parts[0], not truth)
            case "and" | "or" as kind:
                may = partial(may, within_or=within_or or kind == "or")
                # The masks of thousands of parts are not kept at once.
                return reduce(and_ if (kind == "and") == truth else or_, (may(part, truth) for part in it.parts))
            case "name" | "quoted":
                return self._compare(it, "eq", Node("boolean", text=str(truth).lower()), or_null=or_null)
            case "boolean":
                return (it.text == "true") == truth
            case "null":
                return self._validity(it.parts[0], pc.is_null if truth else pc.is_valid)
            case "between":
                parts, is_all = [("gte", it.parts[1]), ("lte", it.parts[2])], truth
            case "in":
                parts, is_all = [("eq", value) for value in it.parts[1:]], not truth
            case kind if kind in _COMPARE:
                parts, is_all = [(kind, it.parts[1])], True
            case _:
                return True
        if len(parts) > 1 and any(self._comparison(it.parts[0], value) is None for _, value in parts):
            # Beside a float, Lance reads all the values as floats.
            return True
        operators = [(operator if truth else _OPPOSITES[operator], value) for operator, value in parts]
        masks = [self._compare(it.parts[0], operator, value, or_null=or_null) for operator, value in operators]
        return reduce(and_ if is_all else or_, masks)

    def _compare(self, left: Node, operator: str, right: Node, *, or_null: bool) -> Mask:
        if (comparison := self._comparison(left, right)) is None:
            if (comparison := self._comparison(right, left)) is None:
                return True
            operator = _SWAPPED.get(operator, operator)
        name, constant = comparison
        if operator in _STRICT and (neighbour := _neighbour(constant, up=operator == "gt")) is not None:
            operator, constant = _STRICT[operator], neighbour
        mask: Mask = True
        for key in self._keys[name]:
            if (expected := _first(partial(key.of, constant))) is None:
                continue
            if operator == "eq":
                mask = mask & _array(_same(key.values, expected))
            elif key.is_exact or (key.is_ordered and operator != "neq"):
                with_equal = operator if key.is_exact else _STRICT.get(operator, operator)
                mask = mask & _array(_COMPARE[with_equal](key.values, expected))
            elif key.is_null_safe:
                mask = mask & _array(pc.is_valid(key.values))
        return mask | self._validity(left if self._name(left) else right, pc.is_null) if or_null else mask

    def _comparison(self, left: Node, right: Node) -> tuple[str, pa.Array] | None:
        """Returns the column on the left and the constant on the right; None if they are something else."""
        if (name := self._name(left)) is None:
            return None
        constant = _constant(right, self._schema.field(name).type)
        return None if constant is None else (name, constant)

    def _name(self, it: Node) -> str | None:
        """Returns the name of the column of the schema that a value is; None if it is something else."""
        if it.kind in ("name", "quoted") and it.text in self._keys:
            return it.text
        # As in Lance, the case of a name only counts in backticks, or if a column has exactly that name.
        alike = [name for name in self._keys if it.kind == "name" and name.casefold() == it.text.casefold()]
        return alike[0] if len(alike) == 1 else None

    def _validity(self, it: Node, check: Callable[[pa.Array], pa.Array]) -> Mask:
        mask: Mask = True
        if (name := self._name(it)) is not None:
            for key in self._keys[name]:
                if key.is_null_safe:
                    mask = mask & _array(check(key.values))
        return mask


def _first(derived: Callable[[], pa.Array]) -> pa.Scalar | None:
    """Returns the first derived value; None if the expression of a field fails for it, which no row has then."""
    try:
        return derived()[0]
    except (InvalidInputError, pa.ArrowException):
        return None


def _same(values: pa.Array, expected: pa.Scalar) -> pa.Array:
    if not expected.is_valid:
        return pc.is_null(values)
    # The result of an expression may be NaN.
    is_same = pc.equal(values, expected)
    return pc.or_kleene(is_same, pc.is_nan(values)) if pa.types.is_floating(values.type) else is_same


def _array(mask: pa.Array) -> Mask:
    """Returns a mask in which null is False."""
    result: Mask = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return result


def _neighbour(constant: pa.Array, *, up: bool) -> pa.Array | None:
    """Returns the next value of a type whose values can be counted; None if there is none."""
    kind = constant.type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return None
    whole = kind if pa.types.is_integer(kind) else pa.int32() if pa.types.is_date32(kind) else pa.int64()
    try:
        change = pc.add_checked if up else pc.subtract_checked
        return change(constant.cast(whole), pa.scalar(1, whole)).cast(kind)
    except pa.ArrowException:
        return None


def _constant(it: Node, kind: pa.DataType) -> pa.Array | None:
    """Returns a literal as a value of a column's type; None if it is no literal, or is not exactly such a value."""
    try:
        match it.kind:
            case "boolean" if pa.types.is_boolean(kind):
                return pa.array([it.text == "true"], kind)
            case "date" | "timestamp" if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
                if not _TIME_TEXT.fullmatch(it.text):
                    return None
                source = _TIME_TYPES[it.kind]
                moment = pa.array([it.text]).cast(source)
                # A date loses the time of day.
                return constant if (constant := moment.cast(kind)).cast(source).equals(moment) else None
            case "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                return pa.array([it.text], kind)
            case "number" if not -(2**63) < int(it.text) < 2**64:
                # Lance reads a float, also for the smallest integer of 64 bits.
                return None
            case "number" if pa.types.is_integer(kind):
                return pa.array([int(it.text)], kind)
            case "number" if pa.types.is_decimal(kind):
                return pa.array([Decimal(it.text)], kind)
    except (ValueError, OverflowError, pa.ArrowException):
        # Lance may convert it, but not to one value of that type.
        return None
    return None


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a condition."""

    kind: str
    """`and`, `or`, `not`, `eq` and other comparisons, `null`, `in`, `between`; `name`, `quoted` (a name in backticks),
    `boolean`, `number`, `text`, `date`, `timestamp`; or `unknown`."""
    parts: Sequence[Node] = ()
    text: str = ""
    """The name, or the value of a literal."""


UNKNOWN: Final = Node("unknown")
"""A part without a meaning."""


class _UnreadableError(Exception):
    """The condition has other syntax than this module reads."""


def read_condition(where: str) -> Node:
    """Returns the meaning of a condition that Lance accepts; `UNKNOWN` if it has other syntax than is read here."""
    try:
        return _Reader(where).whole()
    except _UnreadableError:
        return UNKNOWN


class _Reader:
    def __init__(self, where: str) -> None:
        parts = list(tokens(where))
        # Lance takes a text in double quotes as a string in some places, and as a name in others.
        if where.count('"') > sum(text.count('"') for kind, text in parts if kind == "string"):
            raise _UnreadableError
        if any(kind == "space" and text.strip(" \t\r\n") for kind, text in parts):
            raise _UnreadableError
        self._rest = [(kind, text) for kind, text in reversed(parts) if kind != "space"]

    def whole(self) -> Node:
        node = self._any()
        if self._rest:
            raise _UnreadableError
        return node

    def _take(self, kind: str, *texts: str) -> str | None:
        """Returns the text of the next token, in lower case, and skips it, if it is one of these; else None."""
        if self._rest and self._rest[-1][0] == kind and (not texts or self._rest[-1][1].lower() in texts):
            return self._rest.pop()[1].lower()
        return None

    def _expect(self, kind: str, *texts: str) -> None:
        if self._take(kind, *texts) is None:
            raise _UnreadableError

    def _any(self) -> Node:
        parts = [self._all()]
        while self._take("word", "or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Node("or", parts)

    def _all(self) -> Node:
        parts = [self._term()]
        while self._take("word", "and"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else Node("and", parts)

    def _term(self) -> Node:
        is_negative = False
        while self._take("word", "not"):
            is_negative = not is_negative
        node = left = self._value()
        while (right := self._predicate(left)) is not None:
            # Whichever of two operators in a row binds first, both end before the next AND or OR.
            node = right if left is node else UNKNOWN
            left = UNKNOWN
        return Node("not", [node]) if is_negative else node

    def _predicate(self, left: Node) -> Node | None:
        """Returns the operator after a value, with its other operands; None if there is none."""
        if operator := self._take("operator", *_COMPARISONS):
            return Node(_COMPARISONS[operator], (left, self._value()))
        if self._take("word", "is"):
            is_negative = self._take("word", "not")
            if self._take("word", "true", "false"):
                return UNKNOWN
            self._expect("word", "null")
            node = Node("null", [left])
        else:
            is_negative = self._take("word", "not")
            match self._take("word", "in", "between", "like", "ilike"):
                case "in":
                    self._expect("open", "(")
                    values = [left, self._value()]
                    while self._take("comma"):
                        values.append(self._value())
                    self._expect("close", ")")
                    node = Node("in", values)
                case "between":
                    low = self._value()
                    self._expect("word", "and")
                    node = Node("between", (left, low, self._value()))
                case None:
                    if is_negative:
                        raise _UnreadableError
                    return None
                case _:
                    self._value()
                    node = UNKNOWN
        return Node("not", [node]) if is_negative else node

    def _value(self) -> Node:
        node = self._operand()
        while self._take("operator", *_ARITHMETIC):
            self._operand()
            node = UNKNOWN
        return node

    def _operand(self) -> Node:
        if self._take("operator", "-"):
            number = self._operand()
            is_positive = number.kind == "number" and not number.text.startswith("-")
            return Node("number", text="-" + number.text) if is_positive else UNKNOWN
        if self._take("open", "("):
            node = self._any()
            self._expect("close", ")")
            return node
        kind, text = self._rest.pop() if self._rest else ("end", "")
        match kind:
            case "number":
                return Node("number", text=text) if text.isdecimal() else UNKNOWN
            case "string":
                return Node("text", text=text[1:-1].replace("''", "'"))
            case "quoted":
                return Node("quoted", text=text)
            case "word" if text.lower() not in _NO_NAMES:
                return self._word(text)
        raise _UnreadableError

    def _word(self, text: str) -> Node:
        word = text.lower()
        if word in ("true", "false"):
            return Node("boolean", text=word)
        if word in ("date", "timestamp") and self._rest and self._rest[-1][0] == "string":
            return Node(word, text=self._operand().text)
        if self._take("open", "("):
            depth = 1
            while depth:
                if not self._rest:
                    raise _UnreadableError
                depth += {"open": 1, "close": -1}.get(self._rest.pop()[0], 0)
            return UNKNOWN
        return UNKNOWN if word in _FUNCTIONS else Node("name", text=text)
