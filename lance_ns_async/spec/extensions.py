"""Requests and responses of this package's own extensions of the Lance REST Namespace protocol.

The gateway serves them, and the `rest` backend uses them if the server has them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from lance_ns_async.model import EXAMINE_EVERY, WATCH_EVERY

MAX_NAMES = 1000
"""Maximum number of tables in one request."""

MAX_SINCE = 3 << 20
"""Maximum length of the token of a watch: enough for about 100,000 tables."""

UNAVAILABLE = "lance-ns.unavailable"
"""Key in the context of a listing of all tables: the mounts that are left out because of errors, joined by commas."""


class DescribeTablesRequest(BaseModel):
    """A request for the descriptions of some tables of one namespace."""

    id: list[StrictStr] | None = None
    """The namespace."""
    names: Annotated[list[StrictStr], Field(max_length=MAX_NAMES)]
    """The names of the tables."""
    vend_credentials: bool | None = None

    @classmethod
    def from_dict(cls, fields: Any) -> Self:
        """Returns the request; the models of the spec have the same method."""
        return cls.model_validate(fields)


class DescribeTablesResponse(BaseModel):
    """The descriptions by name, each as the response to `describe_table`; tables with an error are left out."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    tables: dict[str, dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields."""
        return {"tables": self.tables}


class SearchTablesRequest(BaseModel):
    """A request for the best rows of many tables; see `AsyncNamespace.search_many`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    tables: Annotated[list[StrictStr | list[StrictStr]], Field(min_length=1, max_length=MAX_NAMES)]
    """Patterns such as `sales.**`, and ids, as text or as lists of names."""
    vector: list[float] | None = None
    column: StrictStr | None = None
    full_text: StrictStr | dict[str, Any] | None = None
    k: Annotated[int, Field(strict=True, ge=1)] = 10
    filter: StrictStr | None = None
    columns: list[StrictStr] | None = None
    query_fields: dict[str, Any] = Field(default_factory=dict)
    """Further fields of a `query_table` request."""
    timeout: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which the remaining tables are left out, with an error for each."""

    @classmethod
    def from_dict(cls, fields: Any) -> Self:
        """Returns the request; the models of the spec have the same method."""
        return cls.model_validate(fields)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that are set."""
        return self.model_dump(exclude_none=True)


class WatchRequest(BaseModel):
    """A request for the changes of tables as server-sent events."""

    model_config: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    tables: Annotated[list[StrictStr | list[StrictStr]], Field(min_length=1, max_length=MAX_NAMES)]
    """Patterns such as `sales.**`, and ids, as text or as lists of names."""
    since: Annotated[StrictStr, Field(max_length=MAX_SINCE)] | None = None
    """The token of an event, after which the watch goes on; null begins now."""
    existing: StrictBool = False
    """Whether the tables that exist now come first, as `created`; only without `since`."""
    versions: StrictBool = True
    """Whether to look for new versions."""
    every: Annotated[float, Field(strict=True, ge=1, le=86_400)] | None = WATCH_EVERY
    """Seconds between two looks; null looks once and ends the response."""
    examine_every: Annotated[float, Field(strict=True, ge=1, le=86_400)] = EXAMINE_EVERY
    """Seconds in which every table is examined once."""

    @classmethod
    def from_dict(cls, fields: Any) -> Self:
        """Returns the request; the models of the spec have the same method."""
        return cls.model_validate(fields)
