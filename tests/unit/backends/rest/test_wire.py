"""Paths and responses of the Lance REST Namespace protocol."""

from __future__ import annotations

from typing import Any

import lance_namespace.errors as err
import pytest

from lance_ns_async import NamespaceId, TableId
from lance_ns_async.backends.rest import wire
from lance_ns_async.errors import AnotherAnswerError
from lance_ns_async.model import Page


@pytest.mark.parametrize(
    ("names", "segment"),
    [
        (["a", "t"], "a%24t"),
        (["a b", "t+u"], "a%20b%24t%2Bu"),
        (["a/b", "é?#"], "a%2Fb%24%C3%A9%3F%23"),
        (["a", ".."], "a%24.."),
        (["a%2Fb"], "a%252Fb"),
    ],
)
def test_names_are_joined_and_encoded_once(names: list[str], segment: str) -> None:
    assert wire.path_segment(TableId(names), "$") == segment


def test_the_root_is_the_delimiter() -> None:
    assert wire.path_segment(NamespaceId(), "$") == "%24"
    assert wire.path_segment(NamespaceId(), "::") == "%3A%3A"


@pytest.mark.parametrize(
    ("names", "delimiter"), [(["a$b", "t"], "$"), (["a", "$"], "$"), (["a$", "$b"], "$$"), (["a.b"], ".")]
)
def test_a_name_with_the_delimiter_is_refused(names: list[str], delimiter: str) -> None:
    with pytest.raises(err.InvalidInputError, match="set the property delimiter"):
        wire.path_segment(TableId(names), delimiter)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_segment_that_proxies_rewrite_is_refused(name: str) -> None:
    with pytest.raises(err.InvalidInputError, match="proxies rewrite it"):
        wire.path_segment(NamespaceId([name]), "$")


@pytest.mark.parametrize(
    ("body", "codes", "message"),
    [
        ({"error": "a$t", "code": 4}, ("TABLE_NOT_FOUND",), "a$t"),
        ({"error": None, "code": 1, "detail": "no a"}, ("NAMESPACE_NOT_FOUND",), "no a"),
        ({"code": 17}, ("SERVICE_UNAVAILABLE",), ""),
        ({"error": "x", "code": 999}, (), "x"),
        (
            {"error": "Not supported: rename_table not implemented, /home/x/namespace.rs:292:13", "code": 18},
            ("UNSUPPORTED",),
            "Not supported: rename_table not implemented",
        ),
        (
            {"error": "Schema s is not empty.", "code": 13, "detail": "trace"},
            (wire.NOT_EMPTY, "INVALID_INPUT"),
            "Schema s is not empty.",
        ),
        (
            {"error": "Failed\norg.SchemaAlreadyExistsException: s\n\tat org.A.b(A.java:1)\n\tat c", "code": 18},
            ("lost race", "INTERNAL"),
            "Failed\norg.SchemaAlreadyExistsException: s",
        ),
        (
            {"error": "a$t is no Lance table: it is Delta", "code": 13},
            (wire.NOT_LANCE,),
            "a$t is no Lance table: it is Delta",
        ),
        (
            {"error": "gone", "code": 404, "type": "NoSuchTableException"},
            ("NoSuchTableException", wire.OLD_NOT_FOUND),
            "NoSuchTableException: gone",
        ),
        ({"error": "there", "code": 409}, (wire.OLD_CONFLICT,), "there"),
        (
            {"error": "HTTP 404 Not Found", "code": 500, "type": "NotFoundException"},
            (wire.NO_OPERATION, "UNSUPPORTED"),
            "HTTP 404 Not Found",
        ),
    ],
)
def test_errors_are_read_as_new_and_old_servers_write_them(body: Any, codes: tuple[str, ...], message: str) -> None:
    assert wire.read_error(body) == (codes, message)


@pytest.mark.parametrize(
    "body", [{}, {"error": "x"}, {"code": "4"}, {"code": True}, {"code": 4, "error": 7}, [], None, "x"]
)
def test_another_form_of_errors_is_unknown(body: Any) -> None:
    with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
        wire.read_error(body)


def test_names_are_sorted_and_relative_to_the_parent() -> None:
    parent = NamespaceId(["cat", "db"])
    body = {"tables": ["u", "cat$db$t", "cat$other$t"], "page_token": ""}
    assert wire.names("tables", parent, "$", body) == Page(["cat$other$t", "t", "u"])
    assert wire.names("tables", parent, "$", {"tables": None, "page_token": "7"}) == Page([], "7")
    assert wire.names("namespaces", NamespaceId(), "$", {"namespaces": ["b", "a"]}) == Page(["a", "b"])


def test_a_table_has_what_the_response_says() -> None:
    body = {"location": "s3://b/t", "storage_options": {"a": "2"}, "managed_versioning": True, "version": 3}
    table = wire.table(TableId(["n", "t"]), {"a": "1", "b": "1"}, body)
    assert (table.location, table.properties, table.storage_options) == ("s3://b/t", None, {"a": "2", "b": "1"})
    assert table.managed_versioning and table.version == 3
    plain = wire.table(TableId(["n", "t"]), None, {"location": "s3://b/t", "properties": {}, "version": 3})
    assert (plain.properties, plain.storage_options, plain.version) == ({}, None, None)


@pytest.mark.parametrize(
    "names", [{"table": "u"}, {"table": "t", "namespace": ["m"]}, {"table": "t", "namespace": ["n", "m"]}]
)
def test_a_response_about_another_table_is_not_taken(names: dict[str, Any]) -> None:
    with pytest.raises(AnotherAnswerError):
        wire.table(TableId(["n", "t"]), None, {"location": "s3://b/t", **names})


@pytest.mark.parametrize("body", [None, {}, {"id": ["n", "t"], "location": "s3://b/t"}, {"transaction_id": "1"}])
def test_a_response_to_a_removal_is_taken(body: Any) -> None:
    wire.check_removed(TableId(["n", "t"]), body)


@pytest.mark.parametrize("body", [{"id": ["n", "u"]}, {"tables": []}, {"namespaces": []}, {"table": "t"}])
def test_another_response_is_none_to_a_removal(body: Any) -> None:
    with pytest.raises(AnotherAnswerError):
        wire.check_removed(TableId(["n", "t"]), body)
