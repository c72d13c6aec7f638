"""Requests and responses of this package's own extensions of the Lance REST Namespace protocol.

The gateway serves them, and the `rest` backend uses them if the server has them.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictStr

MAX_NAMES = 1000
"""Maximum number of tables in one request."""

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

    model_config = ConfigDict(frozen=True)

    tables: dict[str, dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields."""
        return {"tables": self.tables}
