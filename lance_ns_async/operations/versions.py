"""The operations on versions of tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import lance_namespace as spec
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from lance_namespace_urllib3_client.models.commit_table_result import CommitTableResult
from lance_namespace_urllib3_client.models.create_table_version_entry import CreateTableVersionEntry

from lance_ns_async.backends.base import Version
from lance_ns_async.calls.paging import check_limit, decode_token, encode_token, foreign_token
from lance_ns_async.lifecycle import commits, manifests
from lance_ns_async.model import TableId
from lance_ns_async.operations import refs, requests
from lance_ns_async.operations.requests import operation, passed_on
from lance_ns_async.rendering import counted
from lance_ns_async.session import Session
from lance_ns_async.spec.responses import Short
from lance_ns_async.storage.datasets import MAIN, Snapshot
from lance_ns_async.tabular import EXCERPT, html_table


class ListTableVersionsResponse(Short, spec.ListTableVersionsResponse):
    """The versions of a table."""

    def _repr_html_(self) -> str:
        """Returns a table for notebooks, with what most catalogs say of a version."""
        facts = ("total_rows", "total_fragments", "total_files_size")
        rows = [
            [
                str(it.version),
                "" if it.timestamp_millis is None else _time_text(it.timestamp_millis),
                *((it.metadata or {}).get(name, "") for name in facts),
            ]
            for it in self.versions[:EXCERPT]
        ]
        more = len(self.versions) - EXCERPT
        return html_table(
            counted(len(self.versions), "versions"), ("version", "time", "rows", "fragments", "bytes"), rows, more
        )


def _time_text(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(" ", "seconds")


@passed_on
@operation
async def restore_table(session: Session, request: spec.RestoreTableRequest) -> spec.RestoreTableResponse:
    snapshot = Snapshot(request.version, branch=request.branch)
    await session.change(request.id, lambda it, table: refs.restore(it, table, request.branch), snapshot)
    return spec.RestoreTableResponse()


@passed_on
@operation
async def create_table_version(
    session: Session, request: spec.CreateTableVersionRequest
) -> spec.CreateTableVersionResponse:
    (version,) = await _commit(session, [request])
    return spec.CreateTableVersionResponse(version=requests.table_version(version))


@passed_on
@operation
async def batch_create_table_versions(
    session: Session, request: spec.BatchCreateTableVersionsRequest
) -> spec.BatchCreateTableVersionsResponse:
    versions = await _commit(session, request.entries)
    return spec.BatchCreateTableVersionsResponse(versions=[requests.table_version(version) for version in versions])


@passed_on
@operation
async def batch_commit_tables(
    session: Session, request: spec.BatchCommitTablesRequest
) -> spec.BatchCommitTablesResponse:
    entries: list[spec.CreateTableVersionRequest] = []
    for part in request.operations:
        named = [name for name, value in part if value is not None]
        if len(named) != 1:
            raise InvalidInputError(
                f"operations: each must have exactly one operation, not {len(named)}: {', '.join(named)}"
            )
        if part.create_table_version is None:
            raise UnsupportedOperationError(
                f"Not supported: {named[0]} in a commit of several operations; only create_table_version is allowed"
            )
        entries.append(part.create_table_version)
    versions = await _commit(session, entries)
    answers = [spec.CreateTableVersionResponse(version=requests.table_version(version)) for version in versions]
    return spec.BatchCommitTablesResponse(results=[CommitTableResult(create_table_version=it) for it in answers])


@passed_on
@operation
async def describe_table_version(
    session: Session, request: spec.DescribeTableVersionRequest
) -> spec.DescribeTableVersionResponse:
    id = session.table(request.id)
    with session.operation():
        version = await commits.one(session.backend, id, request.version, request.branch)
    return spec.DescribeTableVersionResponse(version=requests.table_version(version))


@passed_on
@operation
async def list_table_versions(
    session: Session, request: spec.ListTableVersionsRequest
) -> spec.ListTableVersionsResponse:
    id = session.table(request.id)
    check_limit(request.limit)
    after = _after(request.page_token)
    with session.operation():
        if request.descending and request.limit == 1 and after is None:
            newest = await commits.latest(session.backend, id, request.branch)
            versions = [] if newest is None else [newest]
            more = newest is not None and newest.number > 1
        else:
            versions = [*await commits.present(session.backend, id, request.branch)]
            if request.descending:
                versions.reverse()
            if after is not None:
                versions = [it for it in versions if (it.number < after if request.descending else it.number > after)]
            more = request.limit is not None and len(versions) > request.limit
            versions = versions[: request.limit]
    return ListTableVersionsResponse(
        versions=[requests.table_version(version) for version in versions],
        page_token=encode_token([versions[-1].number]) if more else None,
    )


@passed_on
@operation
async def batch_delete_table_versions(
    session: Session, request: spec.BatchDeleteTableVersionsRequest
) -> spec.BatchDeleteTableVersionsResponse:
    id = session.table(request.id)
    if request.branch not in (None, MAIN):
        raise UnsupportedOperationError(
            f"Not supported: deleting versions of branch {request.branch!r}; use delete_table_branch to delete all "
            "of the branch"
        )
    ranges = [(it.start_version, None if it.end_version == -1 else it.end_version) for it in request.ranges]
    for start, end in ranges:
        if start < 0 or (end is not None and end < start):
            raise InvalidInputError(
                f"ranges: [{start}, {end}): must start at 0 or above, and end at its start or above"
            )
    with session.operation():
        count = await commits.delete(session.backend, id, ranges)
    return spec.BatchDeleteTableVersionsResponse(deleted_count=count)


async def _commit(
    session: Session, entries: Sequence[spec.CreateTableVersionRequest | CreateTableVersionEntry]
) -> Sequence[Version]:
    versions: dict[TableId, Version] = {}
    for entry in entries:
        id = session.table(entry.id)
        if id in versions:
            raise InvalidInputError(f"table {id}: it appears twice; a commit creates at most one version of a table")
        versions[id] = _requested_version(entry)
    with session.changing(*versions):
        result = await commits.commit(session.backend, versions) if versions else {}
    return [result[id] for id in versions]


def _requested_version(entry: spec.CreateTableVersionRequest | CreateTableVersionEntry) -> Version:
    """Returns the version that a request describes."""
    _check_branch(entry.branch)
    name, dot, random = entry.manifest_path.rpartition("/")[2].rpartition(".manifest")
    if entry.version < 1 or f"{name}{dot}" not in manifests.names(entry.version) or not random:
        raise InvalidInputError(
            f"manifest_path {entry.manifest_path!r}: before the commit, the name of the manifest of version "
            f"{entry.version} must be {manifests.names(entry.version)[0]} with a suffix; the first version is 1"
        )
    return Version(entry.version, entry.manifest_path, entry.manifest_size, metadata=entry.metadata or {})


def _check_branch(branch: str | None) -> None:
    if branch not in (None, MAIN):
        raise UnsupportedOperationError(
            f"Not supported: branch {branch!r} (catalogs commit only versions of the main branch)"
        )


def _after(page_token: str | None) -> int | None:
    match decode_token(page_token):
        case None:
            return None
        case [int() as number]:
            return number
    raise foreign_token(page_token)
