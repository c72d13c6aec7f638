"""Tags and branches of datasets, and going back to a version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from lance_namespace.errors import (
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
    TableTagNotFoundError,
    UnsupportedOperationError,
)
from lance_namespace_urllib3_client.models.branch_contents import BranchContents
from lance_namespace_urllib3_client.models.tag_contents import TagContents

from lance_ns_async.errors import PHRASES
from lance_ns_async.model import Table
from lance_ns_async.storage import MAIN, check_branch

if TYPE_CHECKING:
    from lance import LanceDataset


def tags(dataset: LanceDataset) -> Mapping[str, TagContents]:
    """The tags by their names."""
    return {
        name: TagContents(branch=it["branch"], version=it["version"], manifest_size=it["manifest_size"])
        for name, it in dataset.tags.list().items()
    }


def tag(table: Table, dataset: LanceDataset, name: str) -> TagContents:
    """What a tag names."""
    found = tags(dataset)
    if name not in found:
        raise TableTagNotFoundError(f"{PHRASES[TableTagNotFoundError]}: {table.id} (no tag {name!r})")
    return found[name]


def create_tag(table: Table, dataset: LanceDataset, name: str, version: int, branch: str | None) -> None:
    """Gives a version a name that no tag has."""
    check_branch(table, dataset, branch)
    dataset.tags.create(name, (_named(branch), version))


def update_tag(table: Table, dataset: LanceDataset, name: str, version: int, branch: str | None) -> None:
    """Has a tag that is there name another version."""
    check_branch(table, dataset, branch)
    dataset.tags.update(name, (_named(branch), version))


def delete_tag(dataset: LanceDataset, name: str) -> None:
    """Removes a tag; the version it named stays."""
    dataset.tags.delete(name)


def branches(dataset: LanceDataset) -> Mapping[str, BranchContents]:
    """The branches beside the main one, by their names."""
    return {
        name: BranchContents(
            parent_branch=it["parent_branch"],
            parent_version=it["parent_version"],
            create_at=it["create_at"],
            manifest_size=it["manifest_size"],
            metadata=it["metadata"] or None,
        )
        for name, it in dataset.branches.list().items()
    }


def create_branch(table: Table, dataset: LanceDataset, name: str, source: str | None, version: int | None) -> None:
    """Makes a branch that begins at a version, or without one at the latest."""
    if table.managed_versioning:
        raise UnsupportedOperationError(
            f"Not supported: branches of {table.id} (its catalog commits the main one alone)"
        )
    known = dataset.branches.list()
    if name in known:
        # Lance has an internal error for it.
        raise TableBranchAlreadyExistsError(f"{PHRASES[TableBranchAlreadyExistsError]}: {table.id} (branch {name!r})")
    check_branch(table, dataset, source)
    dataset.create_branch(name, (_named(source), version))


def delete_branch(table: Table, dataset: LanceDataset, name: str) -> None:
    """Removes a branch and what only it holds."""
    if name == MAIN:
        raise TableBranchNotFoundError(
            f"{PHRASES[TableBranchNotFoundError]}: {table.id} (the branch {MAIN!r} is the table itself; drop that)"
        )
    check_branch(table, dataset, name)
    dataset.branches.delete(name)


def restore(dataset: LanceDataset) -> None:
    """Makes the state that is open the latest version once more."""
    # Its types say nothing.
    cast(Any, dataset).restore()


def _named(branch: str | None) -> str | None:
    return None if branch == MAIN else branch
