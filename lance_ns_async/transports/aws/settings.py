"""Properties that say where a catalog on AWS is, and who asks it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from lance_ns_async.settings import Endpoint, Seconds, Settings

Region = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,63}$")]


class AwsSettings(Settings):
    """What every catalog on AWS can be told. Bare numbers of all times are seconds."""

    region: Region | None = None
    """None means what AWS's own configuration says, or else the variable AWS_REGION."""
    endpoint: Endpoint | None = None
    """Where the catalog's service is; None means AWS's own in the region."""
    access_key_id: str | None = Field(default=None, min_length=1)
    """With `secret_access_key`: who asks. Without: whoever AWS's chain of providers finds."""
    secret_access_key: SecretStr | None = Field(default=None, min_length=1)
    session_token: SecretStr | None = Field(default=None, min_length=1)
    """Given out with temporary keys."""
    assume_role_arn: str | None = Field(default=None, pattern=r"^arn:\S+$", min_length=20, max_length=2048)
    """The role in which the catalog is asked."""
    assume_role_region: Region | None = None
    """Where STS is asked for the role; None means `region`."""
    assume_role_external_id: SecretStr | None = Field(default=None, min_length=2, max_length=1224)
    assume_role_session_name: str = Field(default="lance-ns-async", pattern=r"^[\w+=,.@-]{2,64}$")
    """What the role's use is called in AWS's logs."""
    assume_role_timeout_sec: Seconds = Field(default=3600.0, ge=900, le=43200)
    """How long the role's credentials live; they are renewed before."""
    sts_endpoint: Endpoint | None = None
    """Where STS is; None means AWS's own."""
    connect_timeout: Seconds = Field(default=3.0, gt=0)
    read_timeout: Seconds = Field(default=15.0, gt=0)
    keep_alive: Seconds = Field(default=12.0, gt=0)
    """How long an idle connection is used again."""
    ca_bundle: str | None = None
    """A PEM file of certificate authorities to trust instead of the usual ones."""
    max_response_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """The longest answer that is read."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key: give both or none")
        if self.session_token is not None and self.access_key_id is None:
            raise ValueError("session_token: give access_key_id and secret_access_key with it")
        if self.assume_role_arn is None and (alone := self._about_the_role()):
            raise ValueError(f"{', '.join(alone)}: give assume_role_arn with it")
        return self

    def usual_attempt(self) -> float:
        """Connecting and reading together."""
        return self.connect_timeout + self.read_timeout

    def identity(self) -> str:
        """Where and who: region, endpoint, role and key id."""
        return "|".join(filter(None, (self.region, self.endpoint, self.assume_role_arn, self.access_key_id))) or "aws"

    def _about_the_role(self) -> list[str]:
        return sorted(name for name in self.model_fields_set if name.startswith("assume_role_"))
