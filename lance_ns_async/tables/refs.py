"""Tags and branches of datasets, and the restore of a version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from lance_namespace.errors import (
    InvalidInputError,
    TableBranchAlreadyExistsError,
    TableTagNotFoundError,
    UnsupportedOperationError,
)
from lance_namespace_urllib3_client.models.branch_contents import BranchContents
from lance_namespace_urllib3_client.models.tag_contents import TagContents

from lance_ns_async.errors import PHRASES, shortened
from lance_ns_async.model import Table
from lance_ns_async.storage.datasets import MAIN, check_branch

if TYPE_CHECKING:
    from lance import LanceDataset


_LONGEST = 200
"""Maximum characters of a name in a file name, which Lance makes slightly longer during the write."""

# Errors of concurrent creations of one branch, except the first one.
_OUTRUN = re.compile(r"Dataset already exists|Clone operation should not enter")


def tags(dataset: LanceDataset) -> Mapping[str, TagContents]:
    """Returns the tags, keyed by name."""
    return {
        name: TagContents(branch=it["branch"], version=it["version"], manifest_size=it["manifest_size"])
        for name, it in dataset.tags.list().items()
    }


def tag(dataset: LanceDataset, table: Table, name: str) -> TagContents:
    """Returns the version and the branch of a tag.

    Raises:
        TableTagNotFoundError: There is no such tag.
    """
    all_tags = tags(dataset)
    if name not in all_tags:
        raise TableTagNotFoundError(f"{PHRASES[TableTagNotFoundError]}: {table.id} (no tag {name!r})")
    return all_tags[name]


def create_tag(dataset: LanceDataset, table: Table, name: str, version: int, branch: str | None) -> None:
    """Creates a tag for a version."""
    if not name.isascii():
        # Lance would write the tag, and could then not list any tags of the table.
        raise _invalid(
            table, f"tag {name!r}: Lance cannot read such names; use ASCII letters, digits, '.', '-' and '_'"
        )
    _check_length(table, "tag", name)
    check_branch(table, dataset, branch)
    dataset.tags.create(name, (_named(branch), version))


def update_tag(dataset: LanceDataset, table: Table, name: str, version: int, branch: str | None) -> None:
    """Moves an existing tag to another version."""
    check_branch(table, dataset, branch)
    dataset.tags.update(name, (_named(branch), version))


def delete_tag(dataset: LanceDataset, name: str) -> None:
    """Removes a tag; its version stays."""
    dataset.tags.delete(name)


def branches(dataset: LanceDataset) -> Mapping[str, BranchContents]:
    """Returns the branches except main, keyed by name."""
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


def create_branch(dataset: LanceDataset, table: Table, name: str, source: str | None, version: int | None) -> None:
    """Creates a branch from a version of the source branch, or from its latest version if `version` is None.

    Raises:
        TableBranchAlreadyExistsError: There is a branch of that name.
        UnsupportedOperationError: The catalog commits the table's versions.
    """
    if table.managed_versioning:
        raise UnsupportedOperationError(
            f"Not supported: branches of {table.id} (its catalog commits only versions of the main branch)"
        )
    _check_length(table, "branch", name)
    if name in dataset.branches.list():
        # Lance would report an internal error.
        raise _branch_exists(table, name)
    check_branch(table, dataset, source)
    try:
        dataset.create_branch(name, (_named(source), version))
    except OSError as e:
        if _OUTRUN.search(str(e)):
            raise _branch_exists(table, name) from e
        raise


def delete_branch(dataset: LanceDataset, table: Table, name: str) -> None:
    """Removes a branch and the data that only it refers to."""
    if name == MAIN:
        raise _invalid(table, f"the branch {MAIN!r} cannot be deleted; drop the table instead")
    check_branch(table, dataset, name)
    dataset.branches.delete(name)


def restore(dataset: LanceDataset) -> None:
    """Commits the open version again as the latest one."""
    # pylance's type of this method is incomplete.
    cast(Any, dataset).restore()


def _check_length(table: Table, kind: str, name: str) -> None:
    if len(quote(name, safe="")) > _LONGEST:
        short_name = shortened(name, 20)
        raise _invalid(table, f"{kind} {short_name!r}: the name is too long; use at most {_LONGEST} characters")


def _invalid(table: Table, why: str) -> InvalidInputError:
    return InvalidInputError(f"{PHRASES[InvalidInputError]}: {table.id} ({why})")


def _branch_exists(table: Table, name: str) -> TableBranchAlreadyExistsError:
    return TableBranchAlreadyExistsError(f"{PHRASES[TableBranchAlreadyExistsError]}: {table.id} (branch {name!r})")


def _named(branch: str | None) -> str | None:
    return None if branch == MAIN else branch
