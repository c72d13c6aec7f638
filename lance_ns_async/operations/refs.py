"""The operations on tags and branches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import lance_namespace as spec
import lance_namespace.errors as err
from lance_namespace_urllib3_client.models.branch_contents import BranchContents
from lance_namespace_urllib3_client.models.tag_contents import TagContents

from lance_ns_async.errors import PHRASES, error_about, shortened
from lance_ns_async.model import Table
from lance_ns_async.operations.requests import operation, page_of, passed_on
from lance_ns_async.session import Session
from lance_ns_async.storage import cleanups
from lance_ns_async.storage.datasets import MAIN, Snapshot, check_branch, missing_files, open_snapshot
from lance_ns_async.storage.pylance_errors import translate_errors

if TYPE_CHECKING:
    from lance import LanceDataset


_MAX_NAME_LENGTH = 200
"""Maximum characters of a name in a file name, which Lance makes slightly longer during the write."""

# Errors of concurrent creations of one branch, except the first one.
_OUTRUN = re.compile(r"Dataset already exists|Clone operation should not enter")


@passed_on
@operation
async def list_table_tags(session: Session, request: spec.ListTableTagsRequest) -> spec.ListTableTagsResponse:
    tags = await session.read(request.id, lambda it, _: read_tags(it))
    page, token = await page_of(tags, request.limit, request.page_token)
    return spec.ListTableTagsResponse(tags=page, page_token=token)


@passed_on
@operation
async def get_table_tag_version(
    session: Session, request: spec.GetTableTagVersionRequest
) -> spec.GetTableTagVersionResponse:
    tag = await session.read(request.id, lambda it, table: find_tag(it, table, request.tag))
    return spec.GetTableTagVersionResponse(version=tag.version, branch=tag.branch)


@passed_on
@operation
async def create_table_tag(session: Session, request: spec.CreateTableTagRequest) -> spec.CreateTableTagResponse:
    tag, version, branch = request.tag, request.version, request.branch
    await session.change(request.id, lambda it, table: add_tag(it, table, tag, version, branch))
    return spec.CreateTableTagResponse()


@passed_on
@operation
async def update_table_tag(session: Session, request: spec.UpdateTableTagRequest) -> spec.UpdateTableTagResponse:
    tag, version, branch = request.tag, request.version, request.branch
    await session.change(request.id, lambda it, table: update_tag(it, table, tag, version, branch))
    return spec.UpdateTableTagResponse()


@passed_on
@operation
async def delete_table_tag(session: Session, request: spec.DeleteTableTagRequest) -> spec.DeleteTableTagResponse:
    await session.change(request.id, lambda it, _: delete_tag(it, request.tag))
    return spec.DeleteTableTagResponse()


@passed_on
@operation
async def create_table_branch(
    session: Session, request: spec.CreateTableBranchRequest
) -> spec.CreateTableBranchResponse:
    name, source, version = request.name, request.from_branch, request.from_version
    await session.change(request.id, lambda it, table: create_branch(it, table, name, source, version))
    return spec.CreateTableBranchResponse()


@passed_on
@operation
async def list_table_branches(
    session: Session, request: spec.ListTableBranchesRequest
) -> spec.ListTableBranchesResponse:
    branches = await session.read(request.id, lambda it, _: read_branches(it))
    page, token = await page_of(branches, request.limit, request.page_token)
    return spec.ListTableBranchesResponse(branches=page, page_token=token)


@passed_on
@operation
async def delete_table_branch(
    session: Session, request: spec.DeleteTableBranchRequest
) -> spec.DeleteTableBranchResponse:
    await session.change(request.id, lambda it, table: delete_branch(it, table, request.name))
    return spec.DeleteTableBranchResponse()


def read_tags(dataset: LanceDataset) -> Mapping[str, TagContents]:
    """Returns the tags, keyed by name."""
    return {
        name: TagContents(branch=it["branch"], version=it["version"], manifest_size=it["manifest_size"])
        for name, it in dataset.tags.list().items()
    }


def find_tag(dataset: LanceDataset, table: Table, name: str) -> TagContents:
    """Returns the version and the branch of a tag."""
    all_tags = read_tags(dataset)
    if name not in all_tags:
        raise err.TableTagNotFoundError(f"{PHRASES[err.TableTagNotFoundError]}: {table.id} (no tag {name!r})")
    return all_tags[name]


def add_tag(dataset: LanceDataset, table: Table, name: str, version: int, branch: str | None) -> None:
    """Creates a tag for a version."""
    if not name.isascii():
        # Lance would write the tag, and could then not list any tags of the table.
        raise _invalid(
            table, f"tag {name!r}: Lance cannot read such names; use ASCII letters, digits, '.', '-' and '_'"
        )
    _check_length(table, "tag", name)
    check_branch(table, dataset, branch)
    dataset.tags.create(name, (_named(branch), version))
    _check_whole(dataset, table, Snapshot(version, branch=branch), f"tag {name!r}", lambda: dataset.tags.delete(name))


def update_tag(dataset: LanceDataset, table: Table, name: str, version: int, branch: str | None) -> None:
    """Moves an existing tag to another version."""
    check_branch(table, dataset, branch)
    before = find_tag(dataset, table, name)
    dataset.tags.update(name, (_named(branch), version))

    def undo() -> None:
        dataset.tags.update(name, (before.branch, before.version))

    _check_whole(dataset, table, Snapshot(version, branch=branch), f"tag {name!r}", undo)


def delete_tag(dataset: LanceDataset, name: str) -> None:
    """Removes a tag; its version stays."""
    dataset.tags.delete(name)


def read_branches(dataset: LanceDataset) -> Mapping[str, BranchContents]:
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
    """Creates a branch from a version of the source branch, or from its latest version if `version` is None."""
    if table.managed_versioning:
        raise err.UnsupportedOperationError(
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
    if version is None:
        if (created := dataset.branches.list().get(name)) is None:
            # Another client has deleted it already.
            return
        version = created["parent_version"]
    undo = partial(dataset.branches.delete, name)
    _check_whole(dataset, table, Snapshot(version, branch=source), f"branch {name!r}", undo)


def delete_branch(dataset: LanceDataset, table: Table, name: str) -> None:
    """Removes a branch and the data that only it refers to."""
    if name == MAIN:
        raise _invalid(table, f"the branch {MAIN!r} cannot be deleted; drop the table instead")
    check_branch(table, dataset, name)
    dataset.branches.delete(name)


def restore(dataset: LanceDataset, table: Table, branch: str | None) -> None:
    """Commits the open version again as the latest one."""
    # pylance's type of this method is incomplete.
    opened: Any = dataset
    opened.restore()
    number = dataset.version

    def undo() -> None:
        latest: Any = open_snapshot(table, Snapshot(branch=branch))
        if latest.version == number:
            latest.checkout_version((_named(branch), number - 1)).restore()

    _check_whole(dataset, table, Snapshot(number, branch=branch), "the restored version", undo)


def _check_whole(
    dataset: LanceDataset, table: Table, snapshot: Snapshot, what: str, undo: Callable[[], object]
) -> None:
    """Checks that the version is there to which a change points, with its files, and undoes the change otherwise.

    A clean-up does not know what points to a version since it chose which ones to remove.

    Cost: a listing of clean-ups, an open, and a listing of the data files.
    """
    try:
        with translate_errors(table):
            announcement = cleanups.wait_for_end(table)
            if table.managed_versioning:
                at = dataset.checkout_version((_named(snapshot.branch), snapshot.version))
            else:
                # Without the caches of this process, which may still have what was removed.
                at = open_snapshot(table, snapshot)
            branch = _named(snapshot.branch)
            # The files of a branch are in a folder of its own.
            place = table.location if branch is None else f"{table.location.rstrip('/')}/tree/{branch}"
            missing = missing_files(replace(table, location=place), at)
    except (err.TableNotFoundError, err.TableVersionNotFoundError):
        missing = ["its manifest"]
    error: err.LanceNamespaceError
    if missing:
        why = f"a clean-up removed {missing[0]} at the same time; choose a newer version"
        error = error_about(err.TableVersionNotFoundError, table.id, f"{what} was withdrawn, because {why}")
    elif announcement is not None:
        why = (
            f"a clean-up of its versions has not ended within {cleanups.MAX_WAIT_SECONDS:g} s; try again after its "
            f"end, or delete {announcement} at {table.location} if its process was killed"
        )
        error = error_about(err.ConcurrentModificationError, table.id, f"{what} was withdrawn, because {why}")
    else:
        return
    try:
        with translate_errors(table):
            undo()
    except err.LanceNamespaceError as e:
        error.add_note(f"and it could not be withdrawn ({e})")
    raise error


def _check_length(table: Table, kind: str, name: str) -> None:
    if len(quote(name, safe="")) > _MAX_NAME_LENGTH:
        short_name = shortened(name, 20)
        raise _invalid(table, f"{kind} {short_name!r}: the name is too long; use at most {_MAX_NAME_LENGTH} characters")


def _invalid(table: Table, why: str) -> err.InvalidInputError:
    return err.InvalidInputError(f"{PHRASES[err.InvalidInputError]}: {table.id} ({why})")


def _branch_exists(table: Table, name: str) -> err.TableBranchAlreadyExistsError:
    return err.TableBranchAlreadyExistsError(
        f"{PHRASES[err.TableBranchAlreadyExistsError]}: {table.id} (branch {name!r})"
    )


def _named(branch: str | None) -> str | None:
    return None if branch == MAIN else branch
