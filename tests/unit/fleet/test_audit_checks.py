"""The checks of audits, as functions of values."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance_namespace.errors import PermissionDeniedError

from lance_ns_async.fleet.audit_checks import StorageState, check_namespaces, check_places, check_table
from lance_ns_async.model import NamespaceId, Table, TableId

STORED = pa.schema([("id", pa.int64()), ("name", pa.string())])


def kinds_at(*locations: str) -> list[tuple[str, str]]:
    tables = {TableId([str(i)]): Table(TableId([str(i)]), location) for i, location in enumerate(locations)}
    return sorted((finding.kind, str(finding.id)) for finding in check_places(tables))


@pytest.mark.parametrize(
    ("locations", "expected"),
    [
        (("s3://b/t", "s3://b/t2", "s3://b/t-old"), []),
        (("s3://b/t", "s3://b/t/"), [("shared-location", "0"), ("shared-location", "1")]),
        (("/data/t", "file:///data/t"), [("shared-location", "0"), ("shared-location", "1")]),
        (("s3://b/t", "s3://b/t-2", "s3://b/t/x", "s3://b/t2"), [("nested-location", "2")]),
    ],
)
def test_shared_and_nested_locations_in_any_spelling(locations: tuple[str, ...], expected: list[object]) -> None:
    assert kinds_at(*locations) == expected


@pytest.mark.parametrize(
    ("schema", "difference"),
    [
        (STORED, None),
        (STORED.append(pa.field("new", pa.int8())), "new: no column in the catalog, int8 in the dataset"),
        (STORED.remove(1), "name: string in the catalog, no column in the dataset"),
    ],
)
def test_columns_that_differ_are_named(schema: pa.Schema, difference: str | None) -> None:
    state = StorageState(has_manifest=True, has_data=True, schema=schema)
    table = Table(TableId(["t"]), "s3://b/t", schema=STORED)
    findings = list(check_table(table, state, needs_protection=False, uses_markers=False))
    assert [finding.seen for finding in findings] == ([] if difference is None else [difference])


def test_denied_storage_is_unreadable_and_nothing_else() -> None:
    state = StorageState(error=PermissionDeniedError("no"))
    findings = list(check_table(Table(TableId(["t"]), "s3://b/t"), state, needs_protection=False, uses_markers=False))
    assert [finding.kind for finding in findings] == ["unreadable"] and "denied" in findings[0].seen


def test_namespaces_with_unusable_locations_are_findings() -> None:
    namespaces = {NamespaceId(["a"]): {"location": "relative"}, NamespaceId(["b"]): {"location": "s3://bucket"}}
    assert [finding.id for finding in check_namespaces(namespaces, ["location"])] == [NamespaceId(["a"])]
