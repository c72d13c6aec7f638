"""Thrift's binary protocol: calls byte by byte, and replies split at any position."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_ns_async.transports.thrift.binary import (
    MismatchError,
    Reply,
    call,
    flag,
    no_structs,
    number,
    short,
    struct_field,
    text,
    text_pairs,
    texts,
)
from lance_ns_async.transports.thrift.decoder import Decoder, MalformedError, Shape, fields_of, struct_in
from tests.fakes import thrift_wire as wire

HEAD = b"\x80\x01\x00\x02\x00\x00\x00\x03get\x00\x00\x00\x07"
TABLE = (
    b"\x0b\x00\x01\x00\x00\x00\x01t"
    b"\x08\x00\x04\x00\x00\x00\x2a"
    b"\x0c\x00\x07"
    b"\x0f\x00\x01\x0c\x00\x00\x00\x01\x0b\x00\x01\x00\x00\x00\x02id\x00"
    b"\x0b\x00\x02\x00\x00\x00\x02/t"
    b"\x02\x00\x05\x01"
    b"\x0d\x00\x0a\x0f\x0b\x00\x00\x00\x01\x0b\x00\x00\x00\x01\x00\x00\x00\x01a\x00\x00\x00\x01b"
    b"\x00"
    b"\x0d\x00\x09\x0b\x0b\x00\x00\x00\x02\x00\x00\x00\x01k\x00\x00\x00\x01v\x00\x00\x00\x00\x00\x00\x00\x02\xc3\xa9"
    b"\x00"
)
"""A struct with the types of tables: texts, numbers, nested structs, lists of structs, maps."""
WANTED: Shape = {1: None, 4: None, 7: {2: None}, 9: None}
FOUND = {1: "t", 4: 42, 7: {2: "/t"}, 9: {"k": "v", "": "é"}}


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[i : i + size] for i in range(0, len(data), size))


def read(shape: Shape, data: bytes, size: int | None = None) -> dict[int, Any]:
    decoder = Decoder(shape)
    ends = [decoder.feed(chunk) for chunk in cut(data, size or len(data))]
    assert ends[-1] and not any(ends[:-1])
    return decoder.fields


def test_calls_and_containers_are_encoded_byte_by_byte() -> None:
    arguments = struct_field(1, text(1, "é"), flag(2, False), flag(3, True), short(4, -1), number(5, 7))
    assert call("get", 7, arguments) == (
        b"\x80\x01\x00\x01\x00\x00\x00\x03get\x00\x00\x00\x07"
        b"\x0c\x00\x01"
        b"\x0b\x00\x01\x00\x00\x00\x02\xc3\xa9\x02\x00\x02\x00\x02\x00\x03\x01\x06\x00\x04\xff\xff\x08\x00\x05\x00\x00\x00\x07"
        b"\x00\x00"
    )
    assert texts(2, ["a", ""]) == b"\x0f\x00\x02\x0b\x00\x00\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x00"
    assert no_structs(1) == b"\x0f\x00\x01\x0c\x00\x00\x00\x00"
    assert text_pairs(9, {"k": "v"}) == b"\x0d\x00\x09\x0b\x0b\x00\x00\x00\x01\x00\x00\x00\x01k\x00\x00\x00\x01v"


@pytest.mark.parametrize("size", range(1, len(TABLE) + 1))
def test_a_struct_is_read_however_it_is_cut(size: int) -> None:
    assert read(WANTED, TABLE, size) == FOUND and read({}, TABLE, size) == {}
    assert read({7: {5: None}, 99: None}, TABLE, size) == {7: {5: True}}


_NUMBERS = st.one_of(
    st.builds(wire.Typed, st.just(wire.BYTE), st.integers(-128, 127)),
    st.builds(wire.Typed, st.just(wire.I16), st.integers(-(2**15), 2**15 - 1)),
    st.builds(wire.Typed, st.just(wire.I32), st.integers(-(2**31), 2**31 - 1)),
    st.builds(wire.Typed, st.just(wire.I64), st.integers(-(2**63), 2**63 - 1)),
    st.builds(wire.Typed, st.just(wire.DOUBLE), st.floats(allow_nan=False)),
    st.builds(wire.Typed, st.just(wire.BOOL), st.booleans()),
)
_TEXTS = st.text(max_size=12)


def _fields(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.integers(1, 20), inner, max_size=6).map(wire.Struct)


_STRUCTS = st.recursive(
    _fields(st.one_of(_NUMBERS, _TEXTS)),
    lambda inner: _fields(
        st.one_of(
            _NUMBERS,
            _TEXTS,
            inner,
            st.lists(_TEXTS, max_size=4).map(lambda items: wire.Typed(wire.STRING, items)),
            st.lists(inner, max_size=3).map(lambda items: wire.Typed(wire.STRUCT, items)),
            st.dictionaries(_TEXTS, _TEXTS, max_size=4),
        )
    ),
    max_leaves=12,
)


def _plain(value: Any) -> Any:
    """Returns the expected result of reading a value."""
    match value:
        case wire.Struct():
            return {id: _plain(inner) for id, inner in value.items()}
        case wire.Typed(type=int() as type, value=list() as items) if type in (wire.STRING, wire.STRUCT):
            return [_plain(item) for item in items]
        case wire.Typed():
            return value.value
    return value


def _shape(value: Any) -> Shape | None:
    """Returns the shape with which all of a value is read."""
    match value:
        case wire.Struct():
            return {id: _shape(inner) for id, inner in value.items()}
        case wire.Typed(type=type, value=[*items]) if type == wire.STRUCT:
            merged: Shape | None = None
            for item in items:
                merged = _merged(merged, _shape(item))
            return merged
    return None


def _merged(one: Shape | None, other: Shape | None) -> Shape | None:
    """Returns the shape that reads the values of both, because items of a list may differ."""
    if one is None or other is None:
        return one or other
    return {id: _merged(one.get(id), other.get(id)) for id in (*one, *other)}


@given(value=_STRUCTS, unwanted=_STRUCTS, size=st.integers(1, 40))
def test_any_struct_is_read_and_any_other_skipped(value: wire.Struct, unwanted: wire.Struct, size: int) -> None:
    body = wire.Struct({1: unwanted, 2: value, 3: wire.Typed(wire.STRUCT, [unwanted, unwanted]), 4: "end"})
    data = wire.Message(wire.REPLY, "get", 7, body).encoded()
    reply = Reply("get", 7, {2: _shape(value), 4: None}, keep=True)
    ends = [reply.feed(chunk) for chunk in cut(data, size)]
    assert ends[-1] and not any(ends[:-1])
    assert reply.fields == {2: _plain(value), 4: "end"} and HEAD + reply.body == data


def test_containers_of_all_kinds_are_skipped_and_counts_and_fields_are_read() -> None:
    numbers = b"\x0f\x00\x01\x0a\x00\x00\x00\x02" + bytes(16) + b"\x0e\x00\x02\x02\x00\x00\x00\x01\x01"
    lists = b"\x0f\x00\x03\x0f\x00\x00\x00\x02\x08\x00\x00\x00\x01\x00\x00\x00\x05\x0b\x00\x00\x00\x01\x00\x00\x00\x01a"
    maps = b"\x0d\x00\x04\x08\x0c\x00\x00\x00\x01\x00\x00\x00\x09" + TABLE
    deep = (
        b"\x0d\x00\x05\x0b\x0d\x00\x00\x00\x01\x00\x00\x00\x01k\x03\x0e\x00\x00\x00\x01\x07\x06\x00\x00\x00\x01\x00\x01"
    )
    data = numbers + lists + maps + deep + b"\x0b\x00\x06\x00\x00\x00\x01z\x00"
    for size in (1, 2, 3, 8, len(data)):
        assert read({6: None}, data, size) == {6: "z"}
    for kind in (wire.BOOL, wire.I64, wire.STRING, wire.STRUCT, wire.LIST, wire.SET):
        assert not Decoder({}).feed(b"\x0f\x00\x01" + bytes([kind]) + b"\xff\xff\xff\xff")
    fields = fields_of(TABLE)
    assert list(fields) == [1, 4, 7, 9] and b"".join(fields.values()) + b"\x00" == TABLE
    assert list(fields_of(struct_in(fields[7]))) == [1, 2, 5, 10]


def test_a_long_text_that_nobody_wants_is_not_kept() -> None:
    decoder = Decoder({2: None})
    assert not decoder.feed(b"\x0b\x00\x01\x01\x00\x00\x00")
    chunk = bytes(1 << 20)
    tracemalloc.start()
    try:
        for _ in range(16):
            assert not decoder.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert decoder.feed(b"\x0b\x00\x02\x00\x00\x00\x01z\x00") and decoder.fields == {2: "z"}


@pytest.mark.parametrize("size", [1, 4, 15, 100])
@pytest.mark.parametrize(
    "head",
    [
        HEAD[:-1] + b"\x08",
        HEAD.replace(b"get", b"got"),
        b"\x80\x01\x00\x02\x00\x00\x00\x04gets\x00\x00\x00\x07",
        b"\x80\x01\x00\x03\x00\x00\x00\x03get\x00\x00\x00\x08",
    ],
)
def test_the_reply_to_another_call_is_refused(head: bytes, size: int) -> None:
    reply = Reply("get", 7, {0: None})
    with pytest.raises(MismatchError, match="another call"):
        for chunk in cut(head + text(0, "x") + b"\x00", size):
            reply.feed(chunk)
    assert reply.fields == {}


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request", b"\x15\x03\x03\x00\x02", b"\x80\x01\x00\x01", b"\x00"])
def test_what_is_no_reply_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(MalformedError, match="not a reply in Thrift"):
        Reply("get", 7, {}).feed(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x00", "1 bytes after the end"),
        *((it, "type 99") for it in (b"\x63\x00\x01", b"\x0f\x00\x02\x63\x00\x00\x00\x01")),
        (b"\x0b\x00\x01\x00\x00\x00\x01\xff\x00", "not UTF-8"),
        (b"\x0f\x00\x01\x08\x00\x00\x00\x01\x00\x00\x00\x01\x00", "instead of strings or structs"),
        (b"\x0d\x00\x01\x08\x0b\x00\x00\x00\x01\x00\x00\x00\x01", "instead of strings or structs"),
        *((it, "within each other") for it in (b"\x0c\x00\x02" * 100, b"\x0f\x00\x02" + b"\x0f\x00\x00\x00\x01" * 100)),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        Decoder({1: None}).feed(data)


@given(value=_STRUCTS)
def test_any_struct_is_put_together_again_from_its_fields(value: wire.Struct) -> None:
    data = wire.Message(wire.REPLY, "get", 7, value).encoded().removeprefix(HEAD)
    assert b"".join(fields_of(data).values()) + b"\x00" == data
