"""What a Polaris backend can be told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from lance_ns_async.settings import LocationSettings
from lance_ns_async.storage.locations import Root
from lance_ns_async.transports.http.oauth2 import OAuth2Settings

EVERY = ("*",)
"""The `catalogs` setting that has the server asked which there are."""


def _listed(value: object) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in str(value).split(",") if (name := part.strip())))
    if not names:
        raise ValueError("it names no catalog; write e.g. 'sales,web', or '*' to ask the server for them")
    if "*" in names and names != EVERY:
        raise ValueError("'*' asks the server for all catalogs; give it alone")
    return names


class PolarisSettings(LocationSettings, OAuth2Settings):
    """Properties of Apache Polaris; bare numbers of `connect_timeout` and `read_timeout` are milliseconds."""

    backend = "polaris"

    credential: SecretStr | None = None
    """`client_id:client_secret` for OAuth2 client credentials; the secret begins after the first colon."""
    scope: str = "PRINCIPAL_ROLE:ALL"
    realm: Annotated[str, Field(pattern=r"^[!-~]+$")] | None = None
    """Sent as `Polaris-Realm` on every call; None where the server has one realm, or a default one."""
    root: Root | None = None
    """Where tables declared without a location go, as `{root}/{catalog}/{levels}/{table}`; None: their namespace's."""
    catalogs: Annotated[tuple[str, ...], BeforeValidator(_listed)] | None = None
    """What the root lists, separated by commas; `*` asks the management API, which needs a right to."""
    list_style: Literal["qualified", "relative"] = "qualified"
    """Whether `list_namespaces` gives `catalog.level.name`, as the spec for Polaris has it, or `name` alone."""
    vend_credentials: bool = False
    """Whether credentials are asked for also where a request leaves that open, as pylance and lancedb leave it."""
    filter_tables: bool = False
    """Whether tables of other formats are left out of listings, which costs a call a table."""

    @model_validator(mode="after")
    def _whole_credential(self) -> Self:
        if self.credential is not None and not all(self.client()):
            raise ValueError("credential: Polaris wants client_id:client_secret, with a colon between them")
        return self

    @field_validator("endpoint")
    @classmethod
    def _root_alone(cls, endpoint: str) -> str:
        # What clients of its Iceberg API are given.
        return endpoint.rstrip("/").removesuffix("/api/catalog")

    def identity(self) -> str:
        """Endpoint, realm and client id."""
        return "|".join(filter(None, (self.endpoint, self.realm, self.client()[0])))
