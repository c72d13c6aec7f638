"""Responses with storage options: the values can be read, but are not printed."""

from __future__ import annotations

import pickle
from typing import Any

import lance_namespace as spec
import pytest
from pydantic import BaseModel

from lance_ns_async import Namespace
from lance_ns_async.spec import responses
from tests.fakes.unity import FakeUnity

pytestmark = pytest.mark.environment
OPTIONS = {"aws_secret_access_key": "hush-hush", "region": "eu-west-1"}
KINDS = [
    (responses.CreateTableResponse, spec.CreateTableResponse),
    (responses.DeclareTableResponse, spec.DeclareTableResponse),
    (responses.DescribeTableResponse, spec.DescribeTableResponse),
]
kinds = pytest.mark.parametrize(("ours", "theirs"), KINDS, ids=[theirs.__name__ for _, theirs in KINDS])


@kinds
def test_no_value_is_shown_and_all_are_there(ours: type[Any], theirs: type[BaseModel]) -> None:
    answer = ours(location="s3://b/t", storage_options=OPTIONS)
    for shown in (repr(answer), str(answer), f"{[answer]}", "".join(map(str, answer.__rich_repr__()))):
        assert "hush" not in shown and "'aws_secret_access_key': '***'" in shown and "s3://b/t" in shown
    assert repr(answer).startswith(f"{theirs.__name__}(") and answer.storage_options == OPTIONS
    assert answer.model_dump()["storage_options"] == answer.to_dict()["storage_options"] == OPTIONS
    assert "hush-hush" in answer.to_json()


@kinds
def test_it_is_and_equals_the_model_of_the_spec(ours: type[Any], theirs: type[Any]) -> None:
    fields = {"location": "s3://b/t", "storage_options": OPTIONS}
    answer = ours(**fields)
    assert isinstance(answer, theirs)
    assert answer == theirs(**fields) and theirs(**fields) == answer and answer == ours(**fields)
    assert answer != theirs(location="s3://b/u") and theirs(location="s3://b/u") != answer and answer != fields
    assert answer.model_dump() == theirs(**fields).model_dump()
    plain = {"location": "s3://b/t"}
    assert repr(ours(**plain)) == f"{theirs.__name__}(location='s3://b/t')"
    assert ours(**plain).to_dict() == theirs(**plain).to_dict()
    again = pickle.loads(pickle.dumps(answer))
    assert again == answer and "hush" not in repr(again) and repr(answer.model_copy()) == repr(answer)


def test_values_are_not_shown() -> None:
    assert repr(responses.QueryTableResponse(data=b"x" * 2000)) == "QueryTableResponse(data=<2,000 bytes>)"
    assert repr(responses.ListTablesResponse(tables=["t"])) == "ListTablesResponse(tables=['t'])"
    assert repr(responses.ListNamespacesResponse(namespaces=[])) == "ListNamespacesResponse(namespaces=[])"
    models = [model for name, model in vars(spec).items() if name.endswith("Response")]
    having = {model.__name__ for model in models if "storage_options" in model.model_fields}
    assert having == {theirs.__name__ for _, theirs in KINDS}


def test_what_a_namespace_answers_shows_no_credentials() -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        with Namespace.connect("unity", {**server.properties, "storage.aws_secret_access_key": "hush-hush"}) as ns:
            declared = ns.declare_table({"id": ["main", "a", "t"], "location": "s3://b/t"})
            described = ns.describe_table({"id": ["main", "a", "t"]})
    assert declared.storage_options == described.storage_options == {"aws_secret_access_key": "hush-hush"}
    assert "hush" not in f"{declared!r} {described!r} {declared} {described}"
