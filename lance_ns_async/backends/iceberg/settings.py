"""The settings of the Iceberg REST backend."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from lance_ns_async.settings import LocationSettings
from lance_ns_async.storage.locations import Root
from lance_ns_async.transports.aws.settings import SigningSettings
from lance_ns_async.transports.http.oauth2 import OAuth2Settings


class IcebergSettings(LocationSettings, SigningSettings, OAuth2Settings):
    """Properties of an Iceberg REST catalog; `connect_timeout` and `read_timeout` without a unit are milliseconds."""

    backend = "iceberg"

    warehouse: str | None = None
    """The warehouse in the request to `/v1/config`, which returns the prefix of all paths; not a level of ids."""
    root: Root | None = None
    """Root of default locations, `{root}/{namespace}/{table}`; None means the working directory."""
    metadata_path: str | None = None
    """Root for the server's own metadata files; None means that they are inside each table's location."""
    gc_enabled: bool = False
    """Whether Iceberg's own tools may delete files of the tables; if not, tables get the property `gc.enabled=false`.

    Orphan removal in Iceberg treats the files of Lance as unused files.
    """
    managed_by: Annotated[Literal["storage", "impl"], BeforeValidator(str.lower)] = "storage"
    """Default of the property `managed_by`: Lance commits versions in the storage, or (`impl`) the catalog does."""

    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""

    rest_table_cache_max_entries: int = Field(default=0, ge=0)
    """Maximum number of described tables that are kept with their ETags, so that the server sends only changed ones.

    0 means that none is kept.
    """

    def identity(self) -> str:
        """Returns endpoint, warehouse, client id, and the id of the key and the role that sign requests."""
        parts = (self.endpoint, self.warehouse, self.client()[0], self.rest_access_key_id, self.assume_role_arn)
        return "|".join(filter(None, parts))
