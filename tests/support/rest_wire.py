"""The operations that the `rest` backend sends to its server, according to the server's log, for the documentation.
`python -m tests.documentation` writes the table into the page."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Collection, Mapping
from typing import Any

import lance
import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace
from lance_ns_async.spec.routes import BY_OPERATION, ROUTES, match
from tests.documentation.pages import Page
from tests.fakes.rest import FakeRest
from tests.fakes.server import Answer, Received
from tests.support.lake import stream

PAGE = "catalogs/rest.md"
MODES = ("local", "remote")
_BLOCK = re.compile(r"(<!-- wire -->\n).*(<!-- /wire -->)", re.DOTALL)
_ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
_QUERY = {"k": 1, "vector": {}}
_CATALOG_OPERATIONS = set(
    """list_namespaces describe_namespace create_namespace drop_namespace namespace_exists list_tables list_all_tables
    describe_table declare_table register_table deregister_table drop_table rename_table""".split()
)
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "alter_table_add_columns": {"new_columns": [{"name": "twice", "expression": "id * 2"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "name", "rename": "label"}]},
    "alter_table_backfill_columns": {"column": "name"},
    "alter_table_drop_columns": {"columns": ["name"]},
    "alter_transaction": {"id": ["sales", "t", "1"], "actions": [{"setStatusAction": {"status": "CANCELED"}}]},
    "analyze_table_query_plan": _QUERY,
    "batch_commit_tables": {"operations": [{"declare_table": {"id": ["sales", "other"]}}]},
    "batch_create_table_versions": {"entries": [{"id": ["sales", "t"], "version": 2, "manifest_path": "m"}]},
    "batch_delete_table_versions": {"ranges": [{"start_version": 1, "end_version": 2}]},
    "create_materialized_view": {"kind": "query", "source_query": "SELECT 1", "output_schema": ""},
    "create_namespace": {"id": ["new"]},
    "create_table": {"id": ["sales", "new"]},
    "create_table_branch": {"name": "trial"},
    "create_table_index": {"column": "id", "index_type": "BTREE", "name": "by_id"},
    "create_table_scalar_index": {"column": "id", "index_type": "BTREE", "name": "by_id"},
    "create_table_tag": {"tag": "first", "version": 1},
    "create_table_version": {"version": 2, "manifest_path": "m"},
    "declare_table": {"id": ["sales", "new"]},
    "delete_from_table": {"predicate": "id = 1"},
    "delete_table_branch": {"name": "trial"},
    "delete_table_tag": {"tag": "first"},
    "describe_namespace": {"id": ["sales"]},
    "describe_table_index_stats": {"index_name": "by_id"},
    "describe_table_version": {"version": 1},
    "describe_transaction": {"id": ["sales", "t", "1"]},
    "drop_namespace": {"id": ["empty"]},
    "drop_table_index": {"index_name": "by_id"},
    "explain_table_query_plan": {"query": _QUERY},
    "get_table_tag_version": {"tag": "first"},
    "list_all_tables": {"id": []},
    "list_namespaces": {"id": ["sales"]},
    "list_tables": {"id": ["sales"]},
    "merge_insert_into_table": {"on": ["id"], "when_matched_update_all": True},
    "namespace_exists": {"id": ["sales"]},
    "query_table": _QUERY,
    "refresh_materialized_view": {},
    "register_table": {"id": ["sales", "new"], "location": "s3://lake/new"},
    "rename_table": {"new_table_name": "renamed", "new_namespace_id": ["sales"]},
    "restore_table": {"version": 1},
    "update_field_metadata": {"updates": [{"path": "id", "metadata": {"k": "v"}}]},
    "update_table": {"updates": [["name", "'z'"]]},
    "update_table_schema_metadata": {"metadata": {"k": "v"}},
    "update_table_tag": {"tag": "first", "version": 1},
}
"""The fields of a valid request, besides the id of the table."""


class _Logging(FakeRest):
    """A server with a log of the operations that were requested; it has no operation on rows."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def handle(self, request: Received) -> Answer:
        result = match(request.path.partition("?")[0])
        assert result is not None, request.path
        operation = result[0].operation
        self.log.append(operation)
        return super().handle(request) if operation in _CATALOG_OPERATIONS else Answer(404)


async def logged(operation: str, mode: str) -> Collection[str]:
    with _Logging() as server, tempfile.TemporaryDirectory() as folder:
        server.namespaces[("empty",)] = {}
        lance.write_dataset(_ROWS, f"{folder}/t")
        server.add_table("sales", "t", location=f"{folder}/t")
        properties = {"uri": server.url, "data_operations": mode, "max_retries": "0"}
        async with AsyncNamespace.connect("rest", properties) as namespace:
            route = BY_OPERATION[operation]
            id = {"id": ["sales", "t"]} if "id" in route.request.model_fields else {}
            request = {**id, **_FIELDS.get(operation, {})}
            arguments = [stream(_ROWS)] if route.body == "rows" else []
            try:
                await getattr(namespace, operation)(request, *arguments)
            except LanceNamespaceError as e:
                if re.match(r"\w+Request: ", str(e)):
                    raise
        return dict.fromkeys(server.log)


def table() -> str:
    lines = ["| operation | `local` | `remote` |", "|---|---|---|"]
    for route in ROUTES:
        cells = [_cell(route.operation, asyncio.run(logged(route.operation, mode))) for mode in MODES]
        lines.append(f"| `{route.operation}` | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def written() -> str:
    return _BLOCK.sub(lambda match: f"{match[1]}{table()}{match[2]}", Page(PAGE).text)


def _cell(operation: str, log: Collection[str]) -> str:
    return "server" if operation in log else f"this process, with {', '.join(f'`{it}`' for it in log)}"
