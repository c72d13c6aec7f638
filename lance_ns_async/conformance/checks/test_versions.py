"""Versions, tags and branches of a table."""

from __future__ import annotations

import lance_namespace as spec
import lance_namespace.errors as err
import pytest
from lance_namespace import LanceNamespace

from lance_ns_async.conformance.home import ROWS, expect, pages, stream


@pytest.fixture
def two(ns: LanceNamespace, table: list[str]) -> list[str]:
    """A table with a version of 3 rows, and one of 6."""
    ns.insert_into_table(spec.InsertIntoTableRequest(id=table), stream(ROWS))
    return table


@pytest.mark.parametrize(("descending", "expected"), [(None, None), (True, [2, 1])])
def test_versions_are_listed(
    ns: LanceNamespace, two: list[str], descending: bool | None, expected: list[int] | None
) -> None:
    page = ns.list_table_versions(spec.ListTableVersionsRequest(id=two, descending=descending))
    versions = [it.version for it in page.versions]
    assert versions == (expected or sorted(versions)) and set(versions) == {1, 2}, (
        f"expected {expected or [1, 2]}, found {versions}"
    )


def test_pages_of_versions_have_each_once(ns: LanceNamespace, two: list[str]) -> None:
    versions: list[int] = []
    for page in pages(ns.list_table_versions, spec.ListTableVersionsRequest(id=two, limit=1)):
        assert len(page.versions) <= 1, f"expected at most 1 version in a page, found {len(page.versions)}"
        versions += [it.version for it in page.versions]
    assert sorted(versions) == [1, 2], f"expected [1, 2], found {versions}"


def test_a_version_is_described(ns: LanceNamespace, two: list[str]) -> None:
    version = ns.describe_table_version(spec.DescribeTableVersionRequest(id=two, version=1)).version
    assert version.version == 1 and version.manifest_path, f"expected version 1 with its manifest, found {version}"


def test_a_missing_version_is_not_found(ns: LanceNamespace, two: list[str]) -> None:
    with expect(err.TableVersionNotFoundError):
        ns.describe_table_version(spec.DescribeTableVersionRequest(id=two, version=99))
    with expect(err.TableVersionNotFoundError):
        ns.count_table_rows(spec.CountTableRowsRequest(id=two, version=99))


def test_an_old_version_has_its_rows(ns: LanceNamespace, two: list[str]) -> None:
    count = ns.count_table_rows(spec.CountTableRowsRequest(id=two, version=1)).count
    assert count == 3, f"expected a row count of 3, found {count}"


def test_a_restored_version_is_the_newest(ns: LanceNamespace, two: list[str]) -> None:
    ns.restore_table(spec.RestoreTableRequest(id=two, version=1))
    count = ns.count_table_rows(spec.CountTableRowsRequest(id=two)).count
    assert count == 3, f"expected a row count of 3, found {count}"


def test_a_tag_is_created_listed_moved_and_deleted(ns: LanceNamespace, two: list[str]) -> None:
    ns.create_table_tag(spec.CreateTableTagRequest(id=two, tag="x", version=1))
    tags = ns.list_table_tags(spec.ListTableTagsRequest(id=two)).tags
    assert {name: it.version for name, it in tags.items()} == {"x": 1}, f"expected x at version 1, found {tags}"
    ns.update_table_tag(spec.UpdateTableTagRequest(id=two, tag="x", version=2))
    version = ns.get_table_tag_version(spec.GetTableTagVersionRequest(id=two, tag="x")).version
    assert version == 2, f"expected the tag at version 2, found {version}"
    ns.delete_table_tag(spec.DeleteTableTagRequest(id=two, tag="x"))
    with expect(err.TableTagNotFoundError):
        ns.get_table_tag_version(spec.GetTableTagVersionRequest(id=two, tag="x"))


def test_creating_an_existing_tag_fails(ns: LanceNamespace, two: list[str]) -> None:
    ns.create_table_tag(spec.CreateTableTagRequest(id=two, tag="x", version=1))
    with expect(err.TableTagAlreadyExistsError):
        ns.create_table_tag(spec.CreateTableTagRequest(id=two, tag="x", version=2))
    version = ns.get_table_tag_version(spec.GetTableTagVersionRequest(id=two, tag="x")).version
    assert version == 1, f"expected the tag at version 1, found {version}"


@pytest.mark.parametrize("operation", ["get", "update", "delete"])
def test_a_missing_tag_is_not_found(ns: LanceNamespace, table: list[str], operation: str) -> None:
    with expect(err.TableTagNotFoundError):
        if operation == "get":
            ns.get_table_tag_version(spec.GetTableTagVersionRequest(id=table, tag="none"))
        elif operation == "update":
            ns.update_table_tag(spec.UpdateTableTagRequest(id=table, tag="none", version=1))
        else:
            ns.delete_table_tag(spec.DeleteTableTagRequest(id=table, tag="none"))


def test_a_tag_of_a_missing_version_is_refused(ns: LanceNamespace, table: list[str]) -> None:
    with expect(err.TableVersionNotFoundError):
        ns.create_table_tag(spec.CreateTableTagRequest(id=table, tag="x", version=99))


def test_a_branch_is_created_listed_and_deleted(ns: LanceNamespace, table: list[str]) -> None:
    ns.create_table_branch(spec.CreateTableBranchRequest(id=table, name="b"))
    branches = ns.list_table_branches(spec.ListTableBranchesRequest(id=table)).branches
    assert "b" in branches, f"expected b, found {list(branches)}"
    with expect(err.TableBranchAlreadyExistsError):
        ns.create_table_branch(spec.CreateTableBranchRequest(id=table, name="b"))
    ns.delete_table_branch(spec.DeleteTableBranchRequest(id=table, name="b"))
    with expect(err.TableBranchNotFoundError):
        ns.delete_table_branch(spec.DeleteTableBranchRequest(id=table, name="b"))
