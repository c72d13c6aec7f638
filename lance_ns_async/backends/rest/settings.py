"""The settings of the Lance REST Namespace backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lance_ns_async.model import DELIMITER
from lance_ns_async.transports.aws.settings import SigningSettings
from lance_ns_async.transports.http.oauth2 import OAuth2Settings


class RestSettings(SigningSettings, OAuth2Settings):
    """Properties of a Lance REST Namespace server; those of pylance's `RestNamespace` have the same names here.

    `connect_timeout` and `read_timeout` without a unit are milliseconds.
    """

    backend = "rest"
    aliases: ClassVar[Mapping[str, str]] = {
        "uri": "endpoint",
        "tls_cert_file": "client_cert",
        "tls_key_file": "client_key",
        "tls_ssl_ca_cert": "ca_bundle",
    }

    delimiter: Annotated[str, Field(min_length=1, pattern=r"^[!-~]+$")] = DELIMITER
    """Joins the names of an id in paths; sent with every call. No name can contain it."""
    min_depth: int = Field(default=0, ge=0)
    """Minimum number of namespaces above a table; namespaces with fewer are not asked for tables."""
    max_depth: int | None = Field(default=None, ge=0)
    """Maximum number of namespaces above a table; None if namespaces nest to any depth."""
    data_operations: Literal["local", "remote", "auto"] = "local"
    """Who reads and writes rows: this process, in the storage; (`remote`) the server; (`auto`) the server if it can."""
    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""
    tls_assert_hostname: bool = True
    """Whether the server's certificate must name the host of the endpoint; False needs `ca_bundle`."""

    @model_validator(mode="after")
    def _depths(self) -> Self:
        if self.max_depth is not None and self.max_depth < self.min_depth:
            raise ValueError(f"max_depth: {self.max_depth} is less than min_depth, which is {self.min_depth}")
        return self

    @model_validator(mode="after")
    def _token_endpoint(self) -> Self:
        grants = [name for name in ("credential", "subject_token") if getattr(self, name) is not None]
        if grants and self.oauth2_server_uri is None:
            raise ValueError(f"{grants[0]}: give the address of the token endpoint with it, as oauth2_server_uri")
        if not grants and self.oauth2_server_uri is not None:
            raise ValueError("oauth2_server_uri: give credential or subject_token with it")
        return self

    @model_validator(mode="after")
    def _trusted_authority(self) -> Self:
        if not self.tls_assert_hostname and self.ca_bundle is None:
            raise ValueError(
                "tls.assert_hostname=false: give the authority to trust with it, as ca_bundle or tls.ssl_ca_cert"
            )
        return self

    def checks_hostname(self) -> bool:
        """Returns `tls_assert_hostname`."""
        return self.tls_assert_hostname

    def identity(self) -> str:
        """Returns endpoint, client id, and the id of the key and the role that sign requests."""
        parts = (self.endpoint, self.client()[0], self.rest_access_key_id, self.assume_role_arn)
        return "|".join(filter(None, parts))
