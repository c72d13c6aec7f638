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
from lance_ns_async.namespace.many import ManyTables
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.storage.datasets import MAIN
from lance_ns_async.tables import commits, manifests


class TableVersions(ManyTables):
    """The operations on versions; a catalog that commits them knows of the main branch alone."""

    async def create_table_version(self, request: CreateTableVersionRequest | Fields) -> CreateTableVersionResponse:
        """Commits a version whose manifest is written, and moves that to its final name; costs two calls.

        Only where `managed_by=impl`. Raises ConcurrentModificationError where there is such a version already,
        unless it is this very one: so it may be called again where the outcome is not known.
        """
        request = requests.coerced(CreateTableVersionRequest, request)
        (made,) = await self._committed([request])
        return CreateTableVersionResponse(version=requests.table_version(made))

    async def batch_create_table_versions(
        self, request: BatchCreateTableVersionsRequest | Fields
    ) -> BatchCreateTableVersionsResponse:
        """Commits a version of each of several tables, all or none; unsupported where the catalog cannot."""
        request = requests.coerced(BatchCreateTableVersionsRequest, request)
        made = await self._committed(request.entries)
        return BatchCreateTableVersionsResponse(versions=[requests.table_version(version) for version in made])

    async def batch_commit_tables(self, request: BatchCommitTablesRequest | Fields) -> BatchCommitTablesResponse:
        """What `batch_create_table_versions` does; the other operations it could hold are unsupported."""
        request = requests.coerced(BatchCommitTablesRequest, request)
        entries: list[CreateTableVersionRequest] = []
        for operation in request.operations:
            named = [name for name, given in operation if given is not None]
            if len(named) != 1:
                raise InvalidInputError(f"operations: each names one operation, not {len(named)}: {', '.join(named)}")
            if operation.create_table_version is None:
                raise UnsupportedOperationError(
                    f"Not supported: {named[0]} in one commit with others; only create_table_version is"
                )
            entries.append(operation.create_table_version)
        made = await self._committed(entries)
        answers = [CreateTableVersionResponse(version=requests.table_version(version)) for version in made]
        return BatchCommitTablesResponse(results=[CommitTableResult(create_table_version=it) for it in answers])

    async def describe_table_version(
        self, request: DescribeTableVersionRequest | Fields
    ) -> DescribeTableVersionResponse:
        """Where the manifest of a version is, and of the latest one where the request names none.

        Costs a call, a second one for a version before the latest, and a look into the storage; where the storage
        commits versions, what `list_table_versions` costs.
        """
        request = requests.coerced(DescribeTableVersionRequest, request)
        id = self._table(request.id)
        with self._operation():
            found = await commits.one(self._backend, id, request.version, request.branch)
        return DescribeTableVersionResponse(version=requests.table_version(found))

    async def list_table_versions(self, request: ListTableVersionsRequest | Fields) -> ListTableVersionsResponse:
        """The versions whose manifests are there, oldest first unless `descending`.

        Costs a call and a listing in the storage; the latest alone, that is `descending` with a `limit` of 1, a call
        and a look there. Where the storage commits versions, all manifests are read. A table that has no version,
        or none that its catalog committed, has an empty list.
        """
        request = requests.coerced(ListTableVersionsRequest, request)
        id = self._table(request.id)
        check_limit(request.limit)
        after = _after(request.page_token)
        with self._operation():
            if request.descending and request.limit == 1 and after is None:
                newest = await commits.latest(self._backend, id, request.branch)
                found = [] if newest is None else [newest]
                more = newest is not None and newest.number > 1
            else:
                found = [*await commits.present(self._backend, id, request.branch)]
                if request.descending:
                    found.reverse()
                if after is not None:
                    found = [it for it in found if (it.number < after if request.descending else it.number > after)]
                more = request.limit is not None and len(found) > request.limit
                found = found[: request.limit]
        return ListTableVersionsResponse(
            versions=[requests.table_version(version) for version in found],
            page_token=encode_token([found[-1].number]) if more else None,
        )

    async def batch_delete_table_versions(
        self, request: BatchDeleteTableVersionsRequest | Fields
    ) -> BatchDeleteTableVersionsResponse:
        """Removes versions; costs a call more than `list_table_versions`, and an open of the dataset.

        The latest version stays, and so do those that a tag or a branch needs: to name one of them is an error,
        except that a range up to the latest ends before it. Where the catalog commits versions, their records and
        manifests go, and Lance's clean-up removes the files that only they need; elsewhere those go at once.
        """
        request = requests.coerced(BatchDeleteTableVersionsRequest, request)
        id = self._table(request.id)
        if request.branch not in (None, MAIN):
            raise UnsupportedOperationError(
                f"Not supported: deleting versions of branch {request.branch!r}; delete_table_branch removes all of it"
            )
        ranges = [(it.start_version, None if it.end_version == -1 else it.end_version) for it in request.ranges]
        for start, end in ranges:
            if start < 0 or (end is not None and end < start):
                raise InvalidInputError(f"ranges: [{start}, {end}): it begins at 0 or above, and ends above that")
        with self._operation():
            deleted = await commits.delete(self._backend, id, ranges)
        return BatchDeleteTableVersionsResponse(deleted_count=deleted)

    async def _committed(
        self, entries: Sequence[CreateTableVersionRequest | CreateTableVersionEntry]
    ) -> Sequence[Version]:
        wanted: dict[TableId, Version] = {}
        for entry in entries:
            id = self._table(entry.id)
            if id in wanted:
                raise InvalidInputError(f"table {id}: it is named twice; a commit makes one version of a table")
            wanted[id] = _wanted(entry)
        with self._operation():
            made = await commits.commit(self._backend, wanted) if wanted else {}
        return [made[id] for id in wanted]


def _wanted(entry: CreateTableVersionRequest | CreateTableVersionEntry) -> Version:
    """The version that a request describes."""
    _check_branch(entry.branch)
    name, dot, random = entry.manifest_path.rpartition("/")[2].rpartition(".manifest")
    if entry.version < 1 or f"{name}{dot}" not in manifests.names(entry.version) or not random:
        raise InvalidInputError(
            f"manifest_path {entry.manifest_path!r}: before it is committed, a manifest of version {entry.version} is "
            f"called {manifests.names(entry.version)[0]} with more behind it; versions count from 1"
        )
    return Version(entry.version, entry.manifest_path, entry.manifest_size, metadata=entry.metadata or {})


def _check_branch(branch: str | None) -> None:
    if branch not in (None, MAIN):
        raise UnsupportedOperationError(
            f"Not supported: branch {branch!r} (catalogs commit the versions of the main branch alone)"
        )


def _after(page_token: str | None) -> int | None:
    match decode_token(page_token):
        case None:
            return None
        case [int() as number]:
            return number
    raise foreign_token(page_token)
