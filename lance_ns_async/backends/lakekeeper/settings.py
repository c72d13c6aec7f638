"""Settings of the Lakekeeper backend."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from lance_ns_async.settings import LocationSettings
from lance_ns_async.storage.locations import Root
from lance_ns_async.transports.http.oauth2 import OAuth2Settings


class LakekeeperSettings(LocationSettings, OAuth2Settings):
    """Properties of Lakekeeper; bare numbers of `connect_timeout` and `read_timeout` are milliseconds."""

    backend = "lakekeeper"

    warehouse: Annotated[str, Field(min_length=1)]
    """The name of the warehouse, or `project-id/name`; not a level of ids."""
    scope: str = ""
    """The requested scope; empty for none."""
    root: Root | None = None
    """Base of default table locations, `{root}/{levels}/{table}`; None means that the server chooses them."""
    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""

    @model_validator(mode="after")
    def _token_endpoint(self) -> Self:
        if self.oauth2_server_uri is None and (self.credential is not None or self.subject_token is not None):
            raise ValueError("oauth2_server_uri: give the token endpoint of the identity provider; Lakekeeper has none")
        return self

    @field_validator("endpoint")
    @classmethod
    def _root_alone(cls, endpoint: str) -> str:
        # Clients of the Iceberg API are configured with this longer path.
        return endpoint.rstrip("/").removesuffix("/catalog")

    def identity(self) -> str:
        """Returns endpoint, warehouse and client id."""
        return "|".join(filter(None, (self.endpoint, self.warehouse, self.client()[0])))
