"""Access of pylance to located tables: locations, credentials, caches and the namespace for callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import lance_namespace as spec
import lance_namespace.errors as err

from lance_ns_async.calls import request_headers
from lance_ns_async.errors import error_about, suggest
from lance_ns_async.model import EXPIRY, Table, same_place
from lance_ns_async.spec.responses import DescribeTableResponse
from lance_ns_async.storage import datasets
from lance_ns_async.storage.datasets import LATEST, Snapshot
from lance_ns_async.storage.options import ends_soon, merge_options
from lance_ns_async.storage.pylance_errors import translate_errors

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance_namespace import LanceNamespace

INDEX_CACHE_BYTES = 256 * 2**20
"""Maximum size of the index cache that operations share."""

METADATA_CACHE_BYTES = 128 * 2**20
"""Maximum size of the cache of manifests and file metadata that operations share."""


class Opener:
    """Opens tables for one namespace, and provides arguments for their writes. Blocks: for `in_thread`.

    A table is opened again each time, so that it is never stale; caches shared by all tables make this cheap. If a
    table's credentials expire, or its catalog commits its versions, Lance gets a namespace for callbacks. It is created
    by `connect`, and exists as long as a dataset needs it.
    """

    def __init__(self, connect: Callable[[], LanceNamespace] | None = None) -> None:
        self._connect = connect
        self._lock = Lock()
        self._session: Any = None
        self._callback: LanceNamespace | None = None
        self._parts = 1

    def reduce_caches(self, parts: int) -> None:
        """Makes the maximum size of the caches smaller by a factor; call it before they are used."""
        self._parts = parts

    def close(self) -> None:
        """Releases the caches and the namespace; open datasets keep both."""
        with self._lock:
            self._session = self._callback = None

    def open(self, table: Table, snapshot: Snapshot = LATEST) -> LanceDataset:
        """Opens a snapshot of the table. A missing version, tag, branch and dataset cause different errors."""
        try:
            with translate_errors(table):
                return datasets.open_snapshot(table, snapshot, session=self.caches(), **self._where(table))
        except (err.TableVersionNotFoundError, err.TableTagNotFoundError) as e:
            if snapshot.branch in (None, datasets.MAIN) and (snapshot.version, snapshot.tag) != (None, None):
                raise self._absent(table, snapshot, e) from e.__cause__
            raise

    def _absent(self, table: Table, snapshot: Snapshot, error: err.LanceNamespaceError) -> err.LanceNamespaceError:
        """Returns the error for a missing version or tag, with those that exist; `error` if these are unknown."""
        try:
            newest = self.open(table)
        except err.LanceNamespaceError:
            return error
        if snapshot.tag is not None:
            there_is = suggest(snapshot.tag, sorted(newest.tags.list()))
            return error_about(err.TableTagNotFoundError, table.id, f"tag {snapshot.tag!r}: {there_is}")
        removed = ", so it was removed by a clean-up" if (snapshot.version or 0) < newest.version else ""
        what = f"version {snapshot.version}: the newest is {newest.version}{removed}"
        return error_about(err.TableVersionNotFoundError, table.id, what)

    def asking(self, table: Table) -> dict[str, Any]:
        """Returns pylance's arguments for callbacks about the table; empty if it needs none."""
        expires = EXPIRY in (table.storage_options or {})
        if not (table.managed_versioning or expires):
            return {}
        # Callbacks would use the identity of the namespace, instead of that of the request.
        if not request_headers.current() and (namespace := self._namespace()) is not None:
            return {"namespace_client": namespace, "table_id": list(table.id)}
        if table.managed_versioning:
            raise error_about(
                err.UnsupportedOperationError,
                table.id,
                "its catalog commits its versions, and Lance can reach that only from a namespace that connect created"
                ", and with the identity of that namespace",
            )
        return {}

    def renew(self, table: Table) -> Table:
        """Returns the table with new credentials if its own end soon, for commits, in which Lance renews none.

        Cost:
            One call if they end soon.
        """
        if not ends_soon(table.storage_options) or not (asking := self.asking(table)):
            return table
        request = spec.DescribeTableRequest(id=asking["table_id"], vend_credentials=True)
        there: spec.DescribeTableResponse = asking["namespace_client"].describe_table(request)
        if there.location is None or not same_place(there.location, table.location):
            return table
        return replace(table, storage_options=merge_options(table.storage_options, there.storage_options))

    def caches(self) -> Any:
        """Returns the session with the caches that all datasets share; a new one for a request with headers."""
        import lance

        if request_headers.current():
            return lance.Session()  # type: ignore[attr-defined]  # as below
        with self._lock:
            if self._session is None:
                self._session = lance.Session(  # type: ignore[attr-defined]  # public, but missing in the types
                    index_cache_size_bytes=INDEX_CACHE_BYTES // self._parts,
                    metadata_cache_size_bytes=METADATA_CACHE_BYTES // self._parts,
                )
            return self._session

    def _where(self, table: Table) -> dict[str, Any]:
        options, asking = datasets.options(table), self.asking(table)
        if not asking:
            return {"uri": table.location, "storage_options": options}
        return {**asking, "namespace_client": KnownFirstResponse(table, options, asking["namespace_client"])}

    def _namespace(self) -> LanceNamespace | None:
        with self._lock:
            if self._callback is None and self._connect is not None:
                self._callback = self._connect()
            return self._callback


class KnownFirstResponse:
    """The namespace for Lance's callbacks about one table; its first describe returns values that are already known."""

    def __init__(self, table: Table, options: Mapping[str, str] | None, namespace: LanceNamespace) -> None:
        self._namespace = namespace
        self._first_response: dict[str, Any] | None = {
            "location": table.location,
            "storage_options": options,
            "managed_versioning": table.managed_versioning,
        }

    def describe_table(self, request: Any) -> spec.DescribeTableResponse:
        """Returns the known values in the first call, then the catalog's responses, with fresh credentials."""
        response, self._first_response = self._first_response, None
        return DescribeTableResponse(**response) if response else self._namespace.describe_table(request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._namespace, name)
