"""The spec's operations on versions of tables."""

from __future__ import annotations

from collections.abc import Sequence

from lance_namespace import (
    BatchCommitTablesRequest,
    BatchCommitTablesResponse,
    BatchCreateTableVersionsRequest,
    BatchCreateTableVersionsResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
)
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from lance_namespace_urllib3_client.models.commit_table_result import CommitTableResult
from lance_namespace_urllib3_client.models.create_table_version_entry import CreateTableVersionEntry

from lance_ns_async.backends.base import Version
from lance_ns_async.calls.paging import check_limit, decode_token, encode_token, foreign_token
from lance_ns_async.model import TableId
from lance_ns_async.namespace import requests
from lance_ns_async.namespace.remote_operations import passed_on
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.namespace.session import Session
from lance_ns_async.storage.datasets import MAIN
from lance_ns_async.tables import commits, manifests


class VersionOperations(Session):
    """Operations on versions of tables. A catalog that commits versions knows only the main branch.

    The `Raises` sections omit an error that they have in common: TableNotFoundError, if the table does not exist.
    """

    @passed_on
    async def create_table_version(self, request: CreateTableVersionRequest | Fields) -> CreateTableVersionResponse:
        """Commits a version whose manifest is written, and moves the manifest to its final name.

        The table must have the property `managed_by=impl`. If the outcome of a call is unknown, it may be repeated: a
        version that is already committed with the same manifest is a success.

        Returns:
            The committed version.

        Raises:
            ConcurrentModificationError: Another version with this number exists.
            InvalidInputError: The manifest is not one of this version, or its name or its folder is wrong.
            UnsupportedOperationError: The catalog does not commit the versions of this table, or the branch is not
                main.

        Cost:
            Two calls.
        """
        request = requests.parse(CreateTableVersionRequest, request)
        (version,) = await self._commit([request])
        return CreateTableVersionResponse(version=requests.table_version(version))

    @passed_on
    async def batch_create_table_versions(
        self, request: BatchCreateTableVersionsRequest | Fields
    ) -> BatchCreateTableVersionsResponse:
        """Commits one version of each of several tables: all or none.

        Returns:
            The committed versions, in the order of the request.

        Raises:
            ConcurrentModificationError: Another version with the same number exists for a table.
            InvalidInputError: A table appears twice, or a manifest is not one of its version.
            UnsupportedOperationError: The catalog does not commit the versions of a table, or cannot commit those of
                several tables at once; or a branch is not main.
        """
        request = requests.parse(BatchCreateTableVersionsRequest, request)
        versions = await self._commit(request.entries)
        return BatchCreateTableVersionsResponse(versions=[requests.table_version(version) for version in versions])

    @passed_on
    async def batch_commit_tables(self, request: BatchCommitTablesRequest | Fields) -> BatchCommitTablesResponse:
        """Commits one version of each of several tables, like `batch_create_table_versions`.

        Returns:
            The results, in the order of the request.

        Raises:
            ConcurrentModificationError: Another version with the same number exists for a table.
            InvalidInputError: An entry does not have exactly one operation, a table appears twice, or a manifest is not
                one of its version.
            UnsupportedOperationError: An operation is not `create_table_version`; or see `batch_create_table_versions`.
        """
        request = requests.parse(BatchCommitTablesRequest, request)
        entries: list[CreateTableVersionRequest] = []
        for operation in request.operations:
            named = [name for name, value in operation if value is not None]
            if len(named) != 1:
                raise InvalidInputError(
                    f"operations: each must have exactly one operation, not {len(named)}: {', '.join(named)}"
                )
            if operation.create_table_version is None:
                raise UnsupportedOperationError(
                    f"Not supported: {named[0]} in a commit of several operations; only create_table_version is allowed"
                )
            entries.append(operation.create_table_version)
        versions = await self._commit(entries)
        answers = [CreateTableVersionResponse(version=requests.table_version(version)) for version in versions]
        return BatchCommitTablesResponse(results=[CommitTableResult(create_table_version=it) for it in answers])

    @passed_on
    async def describe_table_version(
        self, request: DescribeTableVersionRequest | Fields
    ) -> DescribeTableVersionResponse:
        """Returns the location of the manifest of a version.

        Args:
            request: `version` None means the latest version.

        Raises:
            TableVersionNotFoundError: The version does not exist, or its manifest was removed.
            TableBranchNotFoundError: The table does not have the branch.
            InvalidTableStateError: The manifest of the latest version that the catalog committed is missing.
            UnsupportedOperationError: The catalog commits the versions of the table, and the branch is not main.

        Cost:
            One call, a second one for a version before the latest, and a look-up in the storage. If the storage commits
            the versions, the cost of `list_table_versions`.
        """
        request = requests.parse(DescribeTableVersionRequest, request)
        id = self._table(request.id)
        with self._operation():
            version = await commits.one(self._backend, id, request.version, request.branch)
        return DescribeTableVersionResponse(version=requests.table_version(version))

    @passed_on
    async def list_table_versions(self, request: ListTableVersionsRequest | Fields) -> ListTableVersionsResponse:
        """Lists the versions whose manifests exist.

        Args:
            request: `limit` is the maximum number of versions; None returns all. With `descending`, the newest version
                comes first, otherwise the oldest.

        Returns:
            The versions, and a page token if there are more. The list is empty if the table has no version, or none
                that its catalog committed.

        Raises:
            TableBranchNotFoundError: The table does not have the branch.
            InvalidTableStateError: The manifest of the latest version that the catalog committed is missing.
            InvalidInputError: The limit or the page token is invalid.
            UnsupportedOperationError: The catalog commits the versions of the table, and the branch is not main.

        Cost:
            One call and a listing in the storage; for the latest version alone (`descending` with `limit=1`) one call
            and a look-up in the storage. If the storage commits the versions, all manifests are read.
        """
        request = requests.parse(ListTableVersionsRequest, request)
        id = self._table(request.id)
        check_limit(request.limit)
        after = _after(request.page_token)
        with self._operation():
            if request.descending and request.limit == 1 and after is None:
                newest = await commits.latest(self._backend, id, request.branch)
                versions = [] if newest is None else [newest]
                more = newest is not None and newest.number > 1
            else:
                versions = [*await commits.present(self._backend, id, request.branch)]
                if request.descending:
                    versions.reverse()
                if after is not None:
                    versions = [
                        it for it in versions if (it.number < after if request.descending else it.number > after)
                    ]
                more = request.limit is not None and len(versions) > request.limit
                versions = versions[: request.limit]
        return ListTableVersionsResponse(
            versions=[requests.table_version(version) for version in versions],
            page_token=encode_token([versions[-1].number]) if more else None,
        )

    @passed_on
    async def batch_delete_table_versions(
        self, request: BatchDeleteTableVersionsRequest | Fields
    ) -> BatchDeleteTableVersionsResponse:
        """Deletes versions of the main branch.

        If the catalog commits the versions, their records and manifests are deleted, and Lance's clean-up later removes
        the files that only they need. Otherwise these files are deleted at once.

        Args:
            request: Each range includes its start and excludes its end; the end -1 means up to the latest version. Such
                a range never includes the latest version.

        Returns:
            The number of deleted versions.

        Raises:
            InvalidTableStateError: A tag or a branch needs one of the versions.
            InvalidInputError: A range is invalid, or includes the latest version.
            UnsupportedOperationError: The branch is not main.

        Cost:
            One call more than `list_table_versions`, and one open of the dataset.
        """
        request = requests.parse(BatchDeleteTableVersionsRequest, request)
        id = self._table(request.id)
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
        with self._operation():
            count = await commits.delete(self._backend, id, ranges)
        return BatchDeleteTableVersionsResponse(deleted_count=count)

    async def _commit(
        self, entries: Sequence[CreateTableVersionRequest | CreateTableVersionEntry]
    ) -> Sequence[Version]:
        versions: dict[TableId, Version] = {}
        for entry in entries:
            id = self._table(entry.id)
            if id in versions:
                raise InvalidInputError(
                    f"table {id}: it appears twice; a commit creates at most one version of a table"
                )
            versions[id] = _requested_version(entry)
        with self._changing(*versions):
            result = await commits.commit(self._backend, versions) if versions else {}
        return [result[id] for id in versions]


def _requested_version(entry: CreateTableVersionRequest | CreateTableVersionEntry) -> Version:
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
