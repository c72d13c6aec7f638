"""A namespace behind a gateway responds as it does directly, to the client of the spec."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError
from pydantic import BaseModel

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import serving
from lance_ns_async.spec.routes import ROUTES
from tests.contract.sites import SITES
from tests.support.gateway import MODELS, Remote
from tests.support.lake import ROWS, stream
from tests.support.operations import OPERATIONS

pytestmark = [pytest.mark.bare, pytest.mark.environment, pytest.mark.floors]


# The differences between two tables that are otherwise equal.
_RANDOM = re.compile(
    r"[0-9a-f]{8}_|-[0-9a-f]{12}\b|_size\W+\d+|[0-9a-f]{8}-[0-9a-f-]{27}|\d{9,}|datetime\(.*?tzinfo=[^)]*\)+|elapsed[^,\]]*|\d+(\.\d+)?[nµm]?s"
)

Step = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], bytes]


def steps(n: list[str], name: str) -> Sequence[Step]:
    """Returns all operations of the spec, most with a valid and an invalid request, on a table in namespace `n`."""
    t, missing = [*n, name], [*n, "missing"]
    query = {"id": t, "k": 2, "vector": {"single_vector": [0.0, 1.0]}, "vector_column": "v"}
    return [
        ("create_namespace", {"id": n, "properties": {"owner": "me"}}),
        ("create_namespace", {"id": n}),
        ("create_namespace", {"id": n, "mode": "exist_ok"}),
        ("describe_namespace", {"id": n}),
        ("namespace_exists", {"id": n}),
        ("namespace_exists", {"id": [*n[:-1], "missing"]}),
        ("list_namespaces", {"id": n[:-1]}),
        ("list_namespaces", {"id": n[:-1], "limit": 0}),
        ("create_table", {"id": t, "properties": {"p": "q%&=+é"}}, stream(ROWS)),
        ("create_table", {"id": t}, stream(ROWS)),
        ("create_table", {"id": t, "mode": "ExistOk"}, stream(ROWS)),
        ("create_table", {"id": missing}, b"no rows"),
        ("describe_table", {"id": t, "load_detailed_metadata": True, "with_table_uri": True}),
        ("describe_table", {"id": t, "version": 1}),
        ("describe_table", {"id": t, "check_declared": True, "vend_credentials": True}),
        ("describe_table", {"id": missing}),
        ("table_exists", {"id": t}),
        ("table_exists", {"id": t, "version": 9}),
        ("declare_table", {"id": [*n, "declared"]}),
        ("declare_table", {"id": t}),
        ("list_tables", {"id": n}),
        ("list_tables", {"id": n, "include_declared": False}),
        ("list_tables", {"id": n, "limit": 1}),
        ("list_all_tables", {"id": None}),
        ("list_all_tables", {"id": None, "limit": 1}),
        ("insert_into_table", {"id": t}, stream(ROWS)),
        ("insert_into_table", {"id": t, "mode": "overwrite"}, stream(ROWS)),
        ("merge_insert_into_table", {"id": t, "on": ["id"], "when_matched_update_all": True}, stream(ROWS.slice(0, 1))),
        ("merge_insert_into_table", {"id": t, "on": ["no", "no2"], "timeout": "9s"}, stream(ROWS)),
        ("update_table", {"id": t, "updates": [["text", "'new'"]], "predicate": "id = 1"}),
        ("delete_from_table", {"id": t, "predicate": "id = 3"}),
        ("count_table_rows", {"id": t}),
        ("count_table_rows", {"id": t, "predicate": "no"}),
        ("query_table", query),
        ("query_table", {**query, "columns": {"column_names": ["id"]}, "filter": "id > 1", "version": 1}),
        ("explain_table_query_plan", {"id": t, "query": query, "verbose": True}),
        ("analyze_table_query_plan", query),
        ("create_table_scalar_index", {"id": t, "column": "id", "index_type": "BTREE", "name": "a/b é"}),
        ("create_table_index", {"id": t, "column": "no", "index_type": "IVF_FLAT"}),
        ("list_table_indices", {"id": t}),
        ("describe_table_index_stats", {"id": t, "index_name": "a/b é"}),
        ("describe_table_index_stats", {"id": t, "index_name": "no"}),
        ("drop_table_index", {"id": t, "index_name": "a/b é"}),
        ("drop_table_index", {"id": t, "index_name": "a/b é", "branch": "no"}),
        ("get_table_stats", {"id": t}),
        ("list_table_versions", {"id": t, "limit": 2, "descending": True}),
        ("describe_table_version", {"id": t, "version": 2}),
        ("create_table_version", {"id": t, "version": 9, "manifest_path": "9.manifest-x"}),
        ("batch_create_table_versions", {"entries": [{"id": t, "version": 9, "manifest_path": "9.manifest-x"}]}),
        ("batch_commit_tables", {"operations": [{"declare_table": {"id": t}}]}),
        ("batch_delete_table_versions", {"id": t, "ranges": [{"start_version": 0, "end_version": 1}]}),
        ("create_table_tag", {"id": t, "tag": "a tag", "version": 2}),
        ("create_table_tag", {"id": t, "tag": "tag", "version": 2}),
        ("update_table_tag", {"id": t, "tag": "tag", "version": 3}),
        ("list_table_tags", {"id": t, "limit": 1}),
        ("get_table_tag_version", {"id": t, "tag": "tag"}),
        ("get_table_tag_version", {"id": t, "tag": "no"}),
        ("delete_table_tag", {"id": t, "tag": "tag"}),
        ("create_table_branch", {"id": t, "name": "side"}),
        ("create_table_branch", {"id": t, "name": "side"}),
        ("list_table_branches", {"id": t}),
        ("insert_into_table", {"id": t, "branch": "side"}, stream(ROWS)),
        ("delete_table_branch", {"id": t, "name": "side"}),
        ("alter_table_add_columns", {"id": t, "new_columns": [{"name": "z", "expression": "id + 1"}]}),
        ("alter_table_alter_columns", {"id": t, "alterations": [{"path": "z", "rename": "y"}]}),
        ("alter_table_drop_columns", {"id": t, "columns": ["y"]}),
        ("update_table_schema_metadata", {"id": t, "metadata": {"a": "b"}}),
        ("update_field_metadata", {"id": t, "updates": [{"path": "id", "metadata": {"unit": "1"}}]}),
        ("restore_table", {"id": t, "version": 1}),
        ("alter_table_backfill_columns", {"id": t, "column": "z"}),
        ("create_materialized_view", {"id": missing, "kind": "query", "source_query": "{}", "output_schema": "{}"}),
        ("refresh_materialized_view", {"id": missing}),
        ("describe_transaction", {"id": [*t, "1"]}),
        ("alter_transaction", {"id": [*t, "1"], "actions": [{"setStatusAction": {"status": "Queued"}}]}),
        ("rename_table", {"id": t, "new_table_name": "other"}),
        ("deregister_table", {"id": [*n, "declared"]}),
        ("register_table", {"id": t, "location": "nowhere"}),
        ("drop_namespace", {"id": n}),
        ("drop_table", {"id": t}),
        ("drop_table", {"id": [*n, "other"]}),
        ("drop_table", {"id": missing}),
        ("drop_namespace", {"id": n, "mode": "Skip", "behavior": "Restrict"}),
    ]


@asynccontextmanager
async def remote(namespace: object) -> AsyncIterator[Remote]:
    async with serving(namespace) as gateway:
        client = Remote(gateway)
        try:
            yield client
        finally:
            await client.close()


async def outcome(namespace: Any, step: Step) -> Any:
    """Returns the response, or the error's class and message."""
    operation, fields, *data = step
    request = MODELS[operation].from_dict(fields)
    try:
        return await getattr(namespace, operation)(request, *data)
    except LanceNamespaceError as e:
        return type(e), str(e)


@pytest.mark.parametrize(("site", "name"), [("dir", "a b.c-d"), ("hive-fake-4.0.1", "a_1"), ("glue", "a b_1")])
async def test_every_operation_answers_as_it_does_directly(site: str, name: str, tmp_path: Path) -> None:
    served: list[str] = []
    with SITES[site](tmp_path / "one") as one, SITES[site](tmp_path / "two") as two:
        async with (
            AsyncNamespace.connect(one.impl, one.properties) as direct,
            AsyncNamespace.connect(two.impl, two.properties) as behind,
            remote(behind) as through,
        ):
            for step in steps([*one.above, "n"], name):
                result = await outcome(through, step)
                if hasattr(direct, step[0]):
                    expected = await outcome(direct, step)
                    assert _comparable(result, tmp_path / "two") == _comparable(expected, tmp_path / "one"), step
                else:
                    assert result[0] is UnsupportedOperationError, step
                served.append(step[0])
    assert set(served) == set(OPERATIONS)


async def test_operations_have_the_spec_s_paths_or_are_unsupported() -> None:
    async with remote(object()) as through:
        for step in steps(["n"], "t"):
            error, message = await outcome(through, step)
            assert error is UnsupportedOperationError and step[0] in message


def test_there_is_a_route_for_each_operation_and_no_two_for_one() -> None:
    assert sorted(route.operation for route in ROUTES) == sorted([*OPERATIONS, "create_empty_table"])
    assert len({route.path for route in ROUTES}) == len(ROUTES)


def _comparable(result: Any, root: Path) -> str:
    # The `repr` of some models hides values.
    shown = repr(result.model_dump() if isinstance(result, BaseModel) else result)
    return _RANDOM.sub("~", shown.replace(str(root).removeprefix("/"), "root"))
