"""Settings of the Polaris backend."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from lance_ns_async.settings import LocationSettings
from lance_ns_async.storage.locations import Root
from lance_ns_async.transports.aws.settings import SigningSettings
from lance_ns_async.transports.http.oauth2 import OAuth2Settings

EVERY = ("*",)
"""The value of `catalogs` that requests the list of catalogs from the server."""


def _parse_catalogs(value: object) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in str(value).split(",") if (name := part.strip())))
    if not names:
        raise ValueError("it names no catalog; write e.g. 'sales,web', or '*' to ask the server for them")
    if "*" in names and names != EVERY:
        raise ValueError("'*' asks the server for all catalogs; use it without other names")
    return names


class PolarisSettings(LocationSettings, SigningSettings, OAuth2Settings):
    """Properties of Apache Polaris; bare numbers of `connect_timeout` and `read_timeout` are milliseconds."""

    backend = "polaris"

    credential: SecretStr | None = None
    """`client_id:client_secret` for OAuth2 client credentials; the secret begins after the first colon."""
    scope: str = "PRINCIPAL_ROLE:ALL"
    realm: Annotated[str, Field(pattern=r"^[!-~]+$")] | None = None
    """Sent as `Polaris-Realm` on every call; None if the server has a single or a default realm."""
    root: Root | None = None
    """Base of default table locations, `{root}/{catalog}/{levels}/{table}`; None means the namespace's location."""
    catalogs: Annotated[tuple[str, ...], BeforeValidator(_parse_catalogs)] | None = None
    """Catalogs that the root lists, separated by commas; `*` requests them from the management API, if permitted."""
    list_style: Literal["qualified", "relative"] = "qualified"
    """Whether `list_namespaces` returns `catalog.level.name`, as in the spec for Polaris, or only `name`."""
    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""
    filter_tables: bool = False
    """Whether listings omit tables of other formats, at the cost of one call per table."""

    @model_validator(mode="after")
    def _whole_credential(self) -> Self:
        if self.credential is not None and not all(self.client()):
            raise ValueError("credential: it must be client_id:client_secret, with a colon between them")
        return self

    @field_validator("endpoint")
    @classmethod
    def _root_alone(cls, endpoint: str) -> str:
        # Clients of the Iceberg API are configured with this longer path.
        return endpoint.rstrip("/").removesuffix("/api/catalog")

    def identity(self) -> str:
        """Returns endpoint, realm, client id, and the id of the key and the role that sign requests."""
        parts = (self.endpoint, self.realm, self.client()[0], self.rest_access_key_id, self.assume_role_arn)
        return "|".join(filter(None, parts))
