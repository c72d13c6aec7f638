"""What a Unity Catalog backend can be told."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from lance_ns_async.backends.unity.credentials import Operation
from lance_ns_async.backends.unity.wire import possible
from lance_ns_async.settings import HttpSettings, LocationSettings, Seconds
from lance_ns_async.storage.locations import checked_root


def _no_millis(value: object) -> object:
    told = str(value).strip()
    if re.fullmatch(r"[0-9]{4,}(\.[0-9]*)?", told):
        raise ValueError(f"{told} would be seconds here; write '{told}ms' for milliseconds, else '{told}s'")
    return value


def _catalog_name(value: str) -> str:
    if not possible(value):
        raise ValueError("not a catalog's name; it has 1 to 255 of the characters a-z, A-Z, 0-9, _, @ and -")
    return value


def _api_path(value: str) -> str:
    path = value.strip("/")
    if not re.fullmatch(r"[A-Za-z0-9._~%!$&'()*+,;=:@/-]*", path):
        raise ValueError("not a path; write e.g. /api/2.1/unity-catalog, odd characters percent-encoded")
    return f"/{path}" if path else ""


def _folded(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


PlainSeconds = Annotated[Seconds, BeforeValidator(_no_millis)]
"""Seconds, refusing bare numbers that were surely meant as milliseconds, which other Lance clients take."""


class UnitySettings(LocationSettings, HttpSettings):
    """Properties of one catalog of Unity Catalog; bare numbers of the time-outs are seconds."""

    backend = "unity"

    catalog: Annotated[str, AfterValidator(_catalog_name)]
    """The catalog that is served: the first name of all ids."""
    api_path: Annotated[str, AfterValidator(_api_path)] = "/api/2.1/unity-catalog"
    """The path between the endpoint and what is asked for; an endpoint that ends with it is not given it twice."""
    connect_timeout: PlainSeconds = Field(default=10.0, gt=0)
    read_timeout: PlainSeconds = Field(default=60.0, gt=0)
    credentials_operation: Annotated[Operation, BeforeValidator(_folded)] = "auto"
    """What a table's credentials are asked for; with `none` nobody asks for any."""
    vend_credentials: bool = False
    """Whether credentials are asked for also where a request leaves that open, as pylance and lancedb leave it."""
    root: Annotated[str, AfterValidator(partial(checked_root, also=("s3a", "abfs")))] | None = None
    """Where tables declared without a location go: `{root}/{catalog}/{schema}/{table}`; None: working directory."""

    def identity(self) -> str:
        """Endpoint and catalog."""
        return f"{self.endpoint}|{self.catalog}"
