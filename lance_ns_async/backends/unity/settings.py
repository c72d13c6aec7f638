"""Settings of the Unity Catalog backend."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lance_ns_async.backends.unity.wire import Operation, possible
from lance_ns_async.settings import LocationSettings, Seconds
from lance_ns_async.storage.locations import checked_root
from lance_ns_async.transports.http.oauth2 import ACCESS_TOKEN, OAuth2Settings, TokenType


def _no_millis(value: object) -> object:
    number = str(value).strip()
    if re.fullmatch(r"[0-9]{4,}(\.[0-9]*)?", number):
        raise ValueError(f"{number} would be seconds here; write '{number}ms' for milliseconds, else '{number}s'")
    return value


def _catalog_name(value: str) -> str:
    if not possible(value):
        raise ValueError("not a valid catalog name; use 1 to 255 of the characters a-z, A-Z, 0-9, _, @ and -")
    return value


def _api_path(value: str) -> str:
    path = value.strip("/")
    if not re.fullmatch(r"[A-Za-z0-9._~%!$&'()*+,;=:@/-]*", path):
        raise ValueError("not a path; write e.g. /api/2.1/unity-catalog, odd characters percent-encoded")
    return f"/{path}" if path else ""


def _fold_case(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


PlainSeconds = Annotated[Seconds, BeforeValidator(_no_millis)]
"""Seconds; rejects bare numbers that probably mean milliseconds, the unit of other Lance clients."""


class UnitySettings(LocationSettings, OAuth2Settings):
    """Properties of one catalog of Unity Catalog; bare numbers of the time-outs are seconds."""

    backend = "unity"

    catalog: Annotated[str, AfterValidator(_catalog_name)]
    """The catalog of this namespace: the first level of all ids."""
    api_path: Annotated[str, AfterValidator(_api_path)] = "/api/2.1/unity-catalog"
    """The path of the API, appended to the endpoint unless the endpoint already ends with it."""
    connect_timeout: PlainSeconds = Field(default=10.0, gt=0)
    read_timeout: PlainSeconds = Field(default=60.0, gt=0)
    scope: str = ""
    """The requested scope; empty for none."""
    requested_token_type: TokenType | None = ACCESS_TOKEN
    credentials_operation: Annotated[Operation, BeforeValidator(_fold_case)] = "auto"
    """Permission of the requested credentials: `auto`, `read`, `read_write`, or `none` to request no credentials."""
    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""
    root: Annotated[str, AfterValidator(partial(checked_root, also=("s3a",)))] | None = None
    """Base of default table locations, `{root}/{catalog}/{schema}/{table}`; None means the working directory."""

    @model_validator(mode="after")
    def _known_token_endpoint(self) -> Self:
        if self.credential is not None and self.subject_token is None and self.oauth2_server_uri is None:
            raise ValueError(
                "credential: give oauth2_server_uri with it, because Unity Catalog itself only exchanges tokens"
            )
        return self

    def identity(self) -> str:
        """Returns endpoint, catalog and client id."""
        return "|".join(filter(None, (self.endpoint, self.catalog, self.client()[0])))
