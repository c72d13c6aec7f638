"""Responses end in a valid value or an error of the spec; Thrift's decoder of random bytes ends, in bounded memory."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lance_namespace.errors import LanceNamespaceError
from pydantic import BaseModel

from lance_ns_async import BulkResult, Table
from lance_ns_async.model import Id
from lance_ns_async.transports.thrift import binary
from lance_ns_async.transports.thrift.decoder import Decoder, MalformedError, Shape, fields_of, struct_in
from tests.fakes.thrift_wire import LIST, MAP, SET, STRING, STRUCT, Message, Struct, decoded
from tests.faults.catalogs import SECRET
from tests.faults.operations import outcome
from tests.fuzz.answering import NO_TOKEN, PLACE, VENDS, Asking, Case, asking, asks, bodies, changed, paths
from tests.fuzz.http_cases import ICEBERG, ICEBERG_ERROR, POLARIS, UNITY, UNITY_TABLE
from tests.fuzz.wire_cases import ANY_RESULT, FLAT, GLUE, GLUE_EMPTY, HIVE, results
from tests.support.budget import examples

ERRORS: Sequence[Case] = (
    Case("iceberg", "an error", "GET .*/tables/", ICEBERG_ERROR, asks("describe_table", "n", "t0")),
    Case("iceberg", "an error of a write", "POST", ICEBERG_ERROR, asks("declare_table", "n", "t0", location=PLACE)),
    Case(
        "iceberg",
        "an error of a token",
        "/oauth/tokens",
        {"error": "invalid_client", "error_description": "no"},
        asks("list_tables", "n"),
        {},
        {"credential": f"id:{SECRET}"},
        NO_TOKEN,
        anew=True,
    ),
    Case("polaris", "an error", "GET", ICEBERG_ERROR, asks("describe_table", "c", "n", "t0")),
    Case(
        "unity",
        "an error",
        "GET",
        {"error_code": "NOT_FOUND", "message": "Table not found: c.n.t0", "details": []},
        asks("describe_table", "c", "n", "t0"),
    ),
    Case(
        "unity",
        "an error of credentials",
        "POST",
        {"error_code": "PERMISSION_DENIED", "message": "no"},
        asks("describe_table", "c", "n", "t0", **VENDS),
        {"/tables/": UNITY_TABLE},
        anew=True,
    ),
    Case(
        "glue",
        "an error",
        "^GetTable$",
        {"__type": "EntityNotFoundException", "Message": "no"},
        asks("describe_table", "n", "t0"),
        GLUE_EMPTY,
        FLAT,
    ),
)

STATUSES = [400, 401, 403, 404, 405, 406, 409, 418, 422, 429, 500, 501, 502]


@pytest.fixture
def client(case: Case) -> Iterator[Asking]:
    with asking(case) as client:
        yield client


@pytest.mark.parametrize("case", [*ICEBERG, *POLARIS, *UNITY, *GLUE], ids=str)
def test_an_answer_of_json_is_understood_or_refused(client: Asking, case: Case) -> None:
    good = decode(client, json.dumps(case.good).encode())
    assert isinstance(good, case.ends) if case.ends else not isinstance(good, LanceNamespaceError), repr(good)

    @settings(max_examples=examples(20))
    @given(bodies(case.good))
    def check(body: bytes) -> None:
        decode(client, body)

    check()


@pytest.mark.parametrize("case", [case for case in (*ICEBERG, *POLARIS, *UNITY) if case.secret is not None], ids=str)
def test_secrets_in_other_places_are_redacted(client: Asking, case: Case) -> None:
    assert case.secret is not None
    for path in paths(case.good):
        if path[: len(case.secret)] == case.secret:
            decode(client, json.dumps(changed(case.good, path, SECRET)).encode())


@pytest.mark.parametrize("case", ERRORS, ids=str)
def test_an_error_is_one_of_the_specs(client: Asking, case: Case) -> None:

    @settings(max_examples=examples(60))
    @given(st.sampled_from(STATUSES), bodies(case.good))
    def check(status: int, body: bytes) -> None:
        decode(client, body, status)

    check()


@pytest.mark.parametrize("case", HIVE, ids=str)
def test_an_answer_of_thrift_is_understood_or_refused(client: Asking, case: Case) -> None:

    @settings(max_examples=examples(60))
    @given(results(case.good))
    def check(result: bytes) -> None:
        decode(client, result)

    check()


def decode(client: Asking, answer: bytes, status: int = 200) -> object:
    async def ask() -> object:
        client.server.answer, client.server.status = answer, status
        async with client.namespace() as ns:
            return await outcome(client.case.ask(ns))

    result = client.runner.run(ask())
    check_sound(result)
    return result


def check_sound(value: object) -> None:
    match value:
        case LanceNamespaceError():
            pass
        case BaseModel():
            assert type(value).model_validate(value.model_dump(by_alias=True)) == value
        case BulkResult(tables, errors):
            assert all(table.id == id for id, table in tables.items())
            for table in tables.values():
                check_table(table)
            assert all(isinstance(error, LanceNamespaceError) for error in errors.values())
        case list():
            assert all(isinstance(id, Id) and all(isinstance(name, str) for name in id) for id in value)
        case _:
            raise AssertionError(f"{value!r} is none of the answers there are")


def check_table(table: Table) -> None:
    assert isinstance(table.location, str)
    for texts in (table.properties, table.storage_options):
        assert texts is None or are_texts(texts)


def are_texts(values: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) and isinstance(value, str) for key, value in values.items())


HEAD = b"\x80\x01\x00\x02\x00\x00\x00\x03get\x00\x00\x00\x07"
EVERYTHING: Shape = {id: {inner: {2: None, 1: None} for inner in range(16)} for id in range(16)}
"""A shape with all kinds of values."""
SHAPES: Sequence[Shape] = [{}, {0: None}, {1: None, 9: None}, {0: {1: {1: None, 7: {2: None}, 9: None}}}, EVERYTHING]
_TEXTS = st.text(max_size=12)
_LITTLE = 200_000  # More bytes than a small message needs, and far fewer than the lengths that it may announce


@st.composite
def _values(draw: st.DrawFn) -> tuple[bytes, Any]:
    """Returns a field of an argument, and the value that a server must read."""
    id = draw(st.integers(1, 2**15 - 1))
    kind = draw(st.integers(0, 5))
    result: Any
    if kind == 0:
        result = draw(_TEXTS)
        return binary.text(id, result), {id: result}
    if kind == 1:
        result = draw(st.booleans())
        return binary.flag(id, result), {id: result}
    if kind == 2:
        result = draw(st.integers(-(2**15), 2**15 - 1))
        return binary.short(id, result), {id: result}
    if kind == 3:
        result = draw(st.integers(-(2**31), 2**31 - 1))
        return binary.number(id, result), {id: result}
    if kind == 4:
        result = draw(st.lists(_TEXTS, max_size=4))
        return binary.texts(id, result), {id: result}
    result = draw(st.dictionaries(_TEXTS, _TEXTS, max_size=4))
    return binary.text_pairs(id, result), {id: result}


ARGUMENTS = st.recursive(
    st.lists(_values(), max_size=4).map(lambda fields: _joined(fields)),
    lambda inner: st.tuples(st.integers(1, 2**15 - 1), inner, inner).map(
        lambda example: (
            binary.struct_field(example[0], example[1][0]) + example[2][0],
            {example[0]: example[1][1], **example[2][1]},
        )
    ),
    max_leaves=5,
)
"""The fields of a call, and the values that a server must read."""


def _joined(fields: Sequence[tuple[bytes, Any]]) -> tuple[bytes, Any]:
    return b"".join(data for data, _ in fields), {id: value for _, result in fields for id, value in result.items()}


@settings(max_examples=examples(200))
@given(ARGUMENTS, st.integers(0, 2**31 - 1), st.text(max_size=30))
def test_any_call_is_what_a_server_reads(example: tuple[bytes, Any], sequence: int, method: str) -> None:
    received = decoded(binary.call(method, sequence, example[0]))
    assert (received.name, received.sequence, received.body) == (method, sequence, example[1])


def _frame(result: Struct) -> bytes:
    return Message(2, "get", 7, result).encoded()


@st.composite
def _broken(draw: st.DrawFn) -> bytes:
    """Returns a correct reply with some bytes changed, added or removed, or cut off at the end."""
    data = bytearray(_frame(draw(ANY_RESULT)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["change", "insert", "delete", "cut", "size"])):
            case "change" if data:
                data[at] = draw(st.integers(0, 255))
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=6))
            case "delete":
                del data[at : at + draw(st.integers(1, 8))]
            case "cut":
                del data[at:]
            case _:
                data[at : at + 4] = draw(st.sampled_from([b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff"]))
    return bytes(data)


@settings(max_examples=examples(500))
@given(st.one_of(_broken(), _broken().map(lambda data: HEAD + data), st.binary(max_size=80)), st.integers(1, 50))
@example(HEAD + b"\x0f\x00\x00\x0c\xff\xff\xff\xff", 1)
def test_any_bytes_are_a_reply_or_refused(data: bytes, size: int) -> None:
    for shape in SHAPES:
        _bounded(binary.Reply("get", 7, shape, keep=True), data, size)


@settings(max_examples=examples(500))
@given(st.binary(max_size=120), st.integers(1, 50))
def test_any_bytes_are_a_struct_or_refused(data: bytes, size: int) -> None:
    for shape in SHAPES:
        _bounded(Decoder(shape), data, size)


@settings(max_examples=examples(300))
@given(_broken(), st.sampled_from(SHAPES))
def test_it_makes_no_difference_how_bytes_are_cut(data: bytes, shape: Shape) -> None:
    body = data[len(HEAD) :]
    assert _read(shape, body, max(len(body), 1)) == _read(shape, body, 1) == _read(shape, body, 7)


@settings(max_examples=examples(300))
@given(st.one_of(_broken().map(lambda data: data[len(HEAD) :]), st.binary(max_size=60)))
def test_fields_are_separated_in_complete_structs(body: bytes) -> None:
    try:
        ended = Decoder({}).feed(body)
    except MalformedError:
        return
    if ended:
        assert sum(map(len, fields_of(body).values())) <= len(body) - 1


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    "claim",
    [
        struct.pack(">BhI", STRING, 1, 2**31),
        struct.pack(">BhI", STRING, 1, 2**32 - 1),
        struct.pack(">BhBI", LIST, 1, STRING, 2**31),
        struct.pack(">BhBI", LIST, 1, STRUCT, 2**32 - 1),
        struct.pack(">BhBI", SET, 1, STRING, 2**31 - 1),
        struct.pack(">BhBBI", MAP, 1, STRING, STRING, 2**31),
        struct.pack(">BhBBI", MAP, 1, STRING, STRING, 2**32 - 1),
        struct.pack(">BhBII", LIST, 1, STRING, 1, 2**31),
    ],
    ids=repr,
)
def test_a_size_alone_takes_no_memory(claim: bytes, keep: bool) -> None:
    decoder = Decoder({1: None} if keep else {})
    tracemalloc.start()
    try:
        assert not decoder.feed(claim)
        assert not decoder.feed(b"\0\0\0\0")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < _LITTLE


@settings(max_examples=examples(200))
@given(_broken())
@example(HEAD + struct.pack(">BhBhBI", STRUCT, 0, LIST, 1, LIST, 127) + struct.pack(">BI", STRING, 0) * 127 + b"\0\0")
def test_what_is_taken_apart_holds_structs_where_they_are_looked_for(data: bytes) -> None:
    reply = binary.Reply("get", 7, {0: None}, keep=True)
    try:
        if reply.feed(data):
            fields_of(struct_in(fields_of(struct_in(fields_of(reply.body)[0]))[1]))
    except (MalformedError, LookupError):
        pass


def _bounded(reader: binary.Reply | Decoder, data: bytes, size: int) -> None:
    """Reads to the end or to an error; the result contains no more values than the bytes can."""
    try:
        for at in range(0, len(data), size):
            if reader.feed(data[at : at + size]):
                break
    except MalformedError as e:
        assert len(str(e)) < 1000
    # The smallest value is an empty struct in a list, which is one byte.
    assert sum(1 for _ in _things(reader.fields)) <= len(data) + 1


def _read(shape: Shape, data: bytes, size: int) -> tuple[bool, str] | None:
    """Returns the text of the result, because NaN does not equal itself; None after an error."""
    decoder, ended = Decoder(shape), False
    try:
        for at in range(0, len(data), size):
            # Bytes after the end belong to the same chunk, or to none.
            if ended:
                return None
            ended = decoder.feed(data[at : at + size])
    except MalformedError:
        return None
    return ended, repr(decoder.fields)


def _things(value: Any) -> Iterator[Any]:
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for held in inner:
        yield from _things(held)
