"""What an Iceberg REST backend can be told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from lance_ns_async.settings import LocationSettings, Url
from lance_ns_async.storage.locations import Root
from lance_ns_async.transports.http.oauth2 import OAuth2Settings


class IcebergSettings(LocationSettings, OAuth2Settings):
    """Properties of an Iceberg REST catalog; bare numbers of `connect_timeout` and `read_timeout` are milliseconds."""

    backend = "iceberg"

    warehouse: str | None = None
    """Sent to `/v1/config`, which answers with the prefix of all paths; not a level of ids."""
    oauth2_server_uri: Url | None = None
    """The token endpoint; None means `{endpoint}/v1/oauth/tokens`."""
    root: Root | None = None
    """Where tables declared without a location go, as `{root}/{namespace}/{table}`; None: working directory."""
    metadata_path: str | None = None
    """Where the server is to keep its own metadata files; None means inside each table's location."""
    gc_enabled: bool = False
    """Whether Iceberg's own tools may delete files of the tables; if not, they are given `gc.enabled=false`.

    Orphan removal takes the files of Lance for files that no table needs.
    """
    managed_by: Annotated[Literal["storage", "impl"], BeforeValidator(str.lower)] = "storage"
    """Who commits the versions of tables declared without that property: Lance in the storage, or the catalog."""

    def identity(self) -> str:
        """Endpoint, warehouse and client id."""
        return "|".join(filter(None, (self.endpoint, self.warehouse, self.client()[0])))
