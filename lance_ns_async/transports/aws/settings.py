"""Settings of catalogs on AWS: region, endpoints, credentials and connections; and of signatures by AWS's keys."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from lance_ns_async.settings import Endpoint, HttpSettings, Seconds, Settings

Region = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,63}$")]


class RoleSettings(Settings):
    """Settings of a role whose temporary keys sign calls. Bare numbers of times are seconds."""

    assume_role_arn: str | None = Field(default=None, pattern=r"^arn:\S+$", min_length=20, max_length=2048)
    """The role to assume for calls on the catalog."""
    assume_role_region: Region | None = None
    """The region of the STS service; None means that of the catalog."""
    assume_role_external_id: SecretStr | None = Field(default=None, min_length=2, max_length=1224)
    assume_role_session_name: str = Field(default="lance-ns-async", pattern=r"^[\w+=,.@-]{2,64}$")
    """Name of the role session, as it appears in AWS's logs."""
    assume_role_timeout_sec: Seconds = Field(default=3600.0, ge=900, le=43200)
    """Lifetime of the role's credentials; they are renewed before it ends."""
    sts_endpoint: Endpoint | None = None
    """The URL of STS; None means AWS's own endpoint."""

    @model_validator(mode="after")
    def _whole_role(self) -> Self:
        fields = RoleSettings.model_fields
        alone = sorted(name for name in _ROLE_ONLY if getattr(self, name) != fields[name].default)
        if self.assume_role_arn is None and alone:
            raise ValueError(f"{', '.join(alone)}: give assume_role_arn with it")
        return self


_ROLE_ONLY = ("assume_role_external_id", "assume_role_region", "assume_role_session_name", "assume_role_timeout_sec")
"""The properties that only matter for a role."""


class AwsSettings(RoleSettings):
    """Settings of every catalog on AWS. Bare numbers of all times are seconds."""

    region: Region | None = None
    """None means the region of AWS's own configuration, or else of the variable AWS_REGION."""
    endpoint: Endpoint | None = None
    """The URL of the catalog's service; None means AWS's own endpoint in the region."""
    access_key_id: str | None = Field(default=None, min_length=1)
    """Static keys, together with `secret_access_key`; None means the keys of AWS's provider chain."""
    secret_access_key: SecretStr | None = Field(default=None, min_length=1)
    session_token: SecretStr | None = Field(default=None, min_length=1)
    """The session token of temporary keys."""
    connect_timeout: Seconds = Field(default=3.0, gt=0)
    read_timeout: Seconds = Field(default=15.0, gt=0)
    keep_alive: Seconds = Field(default=12.0, gt=0)
    """How long an idle connection may be reused."""
    ca_bundle: str | None = None
    """A PEM file of certificate authorities to trust instead of the usual ones."""
    max_response_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """Maximum size of a response in bytes."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key: give both or none")
        if self.session_token is not None and self.access_key_id is None:
            raise ValueError("session_token: give access_key_id and secret_access_key with it")
        return self

    def usual_attempt(self) -> float:
        """Returns the time-outs for connecting and reading together."""
        return self.connect_timeout + self.read_timeout

    def identity(self) -> str:
        """Returns region, endpoint, role and key id."""
        return "|".join(filter(None, (self.region, self.endpoint, self.assume_role_arn, self.access_key_id))) or "aws"


class SigningSettings(RoleSettings, HttpSettings):
    """Additional settings of backends whose HTTP requests can be signed by Signature Version 4.

    Spec: the properties `rest.*` of Iceberg's AwsProperties, with the same names and defaults.
    """

    rest_sigv4_enabled: bool = False
    """Whether requests are signed by AWS's Signature Version 4."""
    rest_signing_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,63}$")] = "execute-api"
    """The name of the service in signatures: `glue`, `s3tables`, or that of Amazon API Gateway."""
    rest_signing_region: Region | None = None
    """The region in signatures; None means the region of AWS's own configuration, or of the variable AWS_REGION."""
    rest_access_key_id: str | None = Field(default=None, min_length=1)
    """Static keys that sign, together with `rest_secret_access_key`; None means the keys of AWS's provider chain."""
    rest_secret_access_key: SecretStr | None = Field(default=None, min_length=1)
    rest_session_token: SecretStr | None = Field(default=None, min_length=1)
    """The session token of temporary keys."""

    @model_validator(mode="after")
    def _whole_signing(self) -> Self:
        if (self.rest_access_key_id is None) != (self.rest_secret_access_key is None):
            raise ValueError("rest.access-key-id and rest.secret-access-key: give both or none")
        if self.rest_session_token is not None and self.rest_access_key_id is None:
            raise ValueError("rest.session-token: give rest.access-key-id and rest.secret-access-key with it")
        alone = [name for name, usual in _SIGNING_ONLY.items() if getattr(self, name) != usual]
        if alone and not self.rest_sigv4_enabled:
            raise ValueError(f"{', '.join(alone)}: set rest.sigv4-enabled to true with it")
        return self


_SIGNING_ONLY = {  # The defaults of the properties that only matter for signatures.
    name: field.default
    for name, field in SigningSettings.model_fields.items()
    if name not in HttpSettings.model_fields and name != "rest_sigv4_enabled"
}
