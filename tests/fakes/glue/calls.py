"""Calls of AWS services as they are received, and error responses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from ..faults import Answer, Received

REQUEST_ID = "b1946ac9-2492-4d23-8d11-f1e2d3c4b5a6"
_CREDENTIAL = re.compile(r"Credential=([^/,]+)/[^/]*/([^/]*)/")


@dataclass(frozen=True, slots=True)
class GlueCall:
    """A call that the server received."""

    operation: str
    """In AWS's spelling: `GetTable`, `AssumeRole`."""
    parameters: Mapping[str, Any]
    """JSON values for Glue and Lake Formation; strings for STS."""
    access_key_id: str
    """The key that signed the call; empty without a signature."""
    region: str
    """The region of the signature."""
    headers: Mapping[str, str]
    """Names in lower case."""


def is_glue(request: Received) -> bool:
    """Returns whether a request is for Glue; others are for Lake Formation or STS."""
    return "X-Amz-Target" in request.headers


def is_lake_formation(request: Received) -> bool:
    """Returns whether a request is for Lake Formation, whose operations are paths."""
    return not is_glue(request) and request.path != "/"


def operation_of(request: Received) -> str:
    """Returns the operation of a request."""
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
    """Returns the call in a request."""
    has_json = is_glue(request) or is_lake_formation(request)
    parameters = request.json or {} if has_json else _form(request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return GlueCall(operation_of(request), parameters, *signer_of(request), headers)


def refusal(request: Received, code: str, message: str, status: int | None = None) -> Answer:
    """Returns an error in the form of the service.

    Glue sends JSON, usually with 400; STS sends XML, with 403, and codes without `Exception` at the end. Lake
    Formation sends the code in a header, and denies with 403.
    """
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
