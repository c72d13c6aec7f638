"""Calls of AWS services as they are received, error responses, and the options and faults of the fake Glue server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from tests.fakes.server import Answer, Delay, Fault, Hold, Received, When

REQUEST_ID = "b1946ac9-2492-4d23-8d11-f1e2d3c4b5a6"
_CREDENTIAL = re.compile(r"Credential=([^/,]+)/[^/]*/([^/]*)/")


@dataclass(frozen=True, slots=True)
class GlueCall:
    """A call that the server received."""

    operation: str  # In AWS's spelling: `GetTable`, `AssumeRole`
    parameters: Mapping[str, Any]  # JSON values for Glue and Lake Formation; strings for STS
    access_key_id: str  # The key that signed the call; empty without a signature
    region: str  # The region of the signature
    headers: Mapping[str, str]  # Names in lower case


def is_glue(request: Received) -> bool:
    """Returns whether a request is for Glue; others are for Lake Formation or STS."""
    return "X-Amz-Target" in request.headers


def is_lake_formation(request: Received) -> bool:
    """Returns whether a request is for Lake Formation, whose operations are paths."""
    return not is_glue(request) and request.path != "/"


def operation_of(request: Received) -> str:
    if is_glue(request):
        return request.headers["X-Amz-Target"].rpartition(".")[2]
    if is_lake_formation(request):
        return request.path.strip("/")
    return _form(request).get("Action", "")


def signer_of(request: Received) -> tuple[str, str]:
    """Returns the access key id and the region of a request's signature; both empty without one."""
    result = _CREDENTIAL.search(request.headers.get("Authorization", ""))
    return (result[1], result[2]) if result else ("", "")


def call_of(request: Received) -> GlueCall:
    has_json = is_glue(request) or is_lake_formation(request)
    parameters = request.json or {} if has_json else _form(request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return GlueCall(operation_of(request), parameters, *signer_of(request), headers)


def refusal(request: Received, code: str, message: str, status: int | None = None) -> Answer:
    """Returns an error in the form of the service. Glue sends JSON, usually with 400; STS sends XML, with 403, and
    codes without `Exception` at the end. Lake Formation sends the code in a header, and denies with 403."""
    if is_lake_formation(request):
        usual = 403 if code == "AccessDeniedException" else 400
        headers = {"Content-Type": "application/json", "x-amzn-ErrorType": code, "x-amzn-RequestId": REQUEST_ID}
        return Answer(status or usual, json.dumps({"Message": message}).encode(), headers)
    if is_glue(request):
        body = json.dumps({"__type": code, "message": message})
        headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": code}
        return Answer(status or 400, body.encode(), {**headers, "x-amzn-RequestId": REQUEST_ID})
    details = f"<Code>{escape(code.removesuffix('Exception'))}</Code><Message>{escape(message)}</Message>"
    xml = (
        f"<ErrorResponse><Error><Type>Sender</Type>{details}</Error><RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"
    )
    return Answer(status or 403, xml.encode(), {"Content-Type": "text/xml", "x-amzn-RequestId": REQUEST_ID})


def _form(request: Received) -> dict[str, str]:
    return dict(parse_qsl(request.body.decode()))


@dataclass(frozen=True, slots=True)
class GlueQuirks:
    """Differences of a server from AWS Glue."""

    stock: bool = False
    """moto in its original form: no catalogs, no pages, `CatalogId` ignored, prefix patterns, case-sensitive names."""
    ignore_expression: bool = False  # `Expression` is ignored: all tables are listed
    fnmatch_expression: bool = False  # `Expression` is a shell pattern, which has no alternation
    short_pages: bool = False  # Pages are shorter than requested, every other one is empty, and so is the last one
    no_catalog_api: bool = False  # Operations on catalogs are unknown, as in moto: 500 and HTML
    no_catalog_ids: bool = False  # Tables are described without the id of their catalog
    session_seconds: int | None = None
    """Lifetime of a role's credentials in seconds, whatever is requested; 0 or less for expired ones."""


_MESSAGES: Mapping[str, str] = {
    "AccessDenied": "User: arn:aws:iam::123456789012:user/fake is not authorized to perform: {action}",
    "ConcurrentModification": "Update failed due to concurrent modifications.",
    "EntityNotFound": "Entity Not Found",
    "ExpiredToken": "The security token included in the request is expired",
    "InvalidSignature": "The request signature we calculated does not match the signature you provided.",
    "Throttling": "Rate exceeded",
    "UnrecognizedClient": "The security token included in the request is invalid.",
}


def format_message(code: str, action: str) -> str:
    """Returns AWS's message for an error code; the code itself if that is unknown."""
    return _MESSAGES.get(code.removesuffix("Exception"), code).format(action=action)


@dataclass(slots=True)
class Occasion:
    """Selects calls whose operation matches the regular expression as a whole; an empty one selects all."""

    operation: str
    times: int | None = None  # Remaining number of calls; None for no limit
    every: int = 1  # Selects each n-th of them
    _seen: int = field(default=0, init=False)

    def takes(self, request: Received) -> bool:
        """Returns whether it applies to this call, which is then counted."""
        if self.times == 0 or not self.means(request):
            return False
        self._seen += 1
        if self._seen % self.every:
            return False
        if self.times is not None:
            self.times -= 1
        return True

    def means(self, request: Received) -> bool:
        """Returns whether the call has the operation, without counting it."""
        return not self.operation or re.fullmatch(self.operation, operation_of(request)) is not None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response to some calls."""

    occasion: Occasion
    code: str
    message: str
    status: int | None  # None for the usual status of the service
    headers: Mapping[str, str]


class OperationFault(Fault):
    """A fault for some operations."""

    def __init__(self, occasion: Occasion, when: When, answer: Answer | None) -> None:
        super().__init__("", None, when, answer)
        self._occasion = occasion

    def takes(self, request: Received) -> bool:
        return self._occasion.takes(request)


class OperationDelay(Delay):
    """A delay for some operations."""

    def __init__(self, occasion: Occasion, seconds: float) -> None:
        super().__init__("", None, seconds)
        self._occasion = occasion

    def takes(self, request: Received) -> bool:
        return self._occasion.takes(request)


class OperationHold(Hold):
    """A hold for some operations."""

    def __init__(self, occasion: Occasion) -> None:
        super().__init__("")
        self._occasion = occasion

    async def pass_by(self, request: Received) -> None:
        if self._occasion.means(request):
            await super().pass_by(request)
