"""Bodies and parameters of requests to a Lakekeeper server, and its refusals of what it cannot read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..faults import Answer, Received

B = TypeVar("B", bound=BaseModel)


class Unread(Exception):
    """A refusal by the web framework, as text without an error object."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def answer(self) -> Answer:
        """Returns the response."""
        return Answer(self.status, str(self).encode(), {"Content-Type": "text/plain; charset=utf-8"})


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, populate_by_name=True)


class NewNamespace(_Body):
    namespace: list[str]
    properties: dict[str, str] | None = None


class NewTable(_Body):
    name: str
    format: Annotated[str, Field(min_length=1)]
    base_location: Annotated[str | None, Field(alias="base-location")] = None
    doc: str | None = None
    properties: dict[str, str] = {}
    schema_: Annotated[Any, Field(alias="schema")] = None
    statistics: Any = None


class Change(_Body):
    updates: dict[str, str] = {}
    removals: list[str] = []


class Ident(_Body):
    namespace: list[str]
    name: str


class Rename(_Body):
    source: Ident
    destination: Ident


def read(kind: type[B], request: Received) -> B:
    """Returns the body of a request."""
    if not request.headers.get("Content-Type", "").startswith("application/json"):
        raise Unread(415, "Expected request with `Content-Type: application/json`")
    try:
        value = request.json
    except ValueError:
        raise Unread(400, "Failed to parse the request body as JSON") from None
    if not request.body:
        raise Unread(400, "Failed to parse the request body as JSON: EOF while parsing a value")
    try:
        return kind.model_validate(value)
    except ValidationError as e:
        message = f"Failed to deserialize the JSON body into the target type: {e.errors()[0]['msg']}"
        raise Unread(422, message) from None


def flag(params: Mapping[str, str], name: str) -> bool:
    """Returns a parameter that is true or false; the default is false."""
    if (text := params.get(name, "false")) not in ("true", "false"):
        raise Unread(400, f"Failed to deserialize query string: {name}: provided string was not `true` or `false`")
    return text == "true"


def page_size(params: Mapping[str, str], default: int) -> int:
    """Returns the number of entries of a page, at least one."""
    try:
        return max(1, int(params.get("pageSize") or default))
    except ValueError:
        raise Unread(400, "Failed to deserialize query string: pageSize: invalid digit found in string") from None
