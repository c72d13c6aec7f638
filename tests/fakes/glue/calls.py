"""Calls of AWS services as they come over the wire, and the errors that go back."""

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
    """As AWS spells it: `GetTable`, `AssumeRole`."""
    parameters: Mapping[str, Any]
    """Those of Glue and Lake Formation as JSON has them; those of STS are all strings."""
    access_key_id: str
    """Whose credentials signed it; empty where nobody's did."""
    region: str
    """The region it was signed for."""
    headers: Mapping[str, str]
    """Names in lower case."""


def is_glue(request: Received) -> bool:
    """Whether a request is for Glue; the others are for Lake Formation or STS."""
    return "X-Amz-Target" in request.headers


def is_lake_formation(request: Received) -> bool:
    """Whether a request is for Lake Formation, whose operations are paths."""
    return not is_glue(request) and request.path != "/"


def operation_of(request: Received) -> str:
    """The operation a request asks for."""
    if is_glue(request):
        return request.headers["X-Amz-Target"].rpartition(".")[2]
    if is_lake_formation(request):
        return request.path.strip("/")
    return _form(request).get("Action", "")


def signer_of(request: Received) -> tuple[str, str]:
    """The access key id and the region in a request's signature; both empty where there is none."""
    found = _CREDENTIAL.search(request.headers.get("Authorization", ""))
    return (found[1], found[2]) if found else ("", "")


def call_of(request: Received) -> GlueCall:
    """The call that a request is."""
    has_json = is_glue(request) or is_lake_formation(request)
    parameters = request.json or {} if has_json else _form(request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return GlueCall(operation_of(request), parameters, *signer_of(request), headers)


def refusal(request: Received, code: str, message: str, status: int | None = None) -> Answer:
    """An error in the words of the service that was asked.

    Glue says it in JSON, usually with 400; STS in XML, with 403, and codes without the `Exception` at their end. Lake
    Formation says the code in a header, and denies with 403.
    """
    if is_lake_formation(request):
        usual = 403 if code == "AccessDeniedException" else 400
        headers = {"Content-Type": "application/json", "x-amzn-ErrorType": code, "x-amzn-RequestId": REQUEST_ID}
        return Answer(status or usual, json.dumps({"Message": message}).encode(), headers)
    if is_glue(request):
        body = json.dumps({"__type": code, "message": message})
        headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": code}
        return Answer(status or 400, body.encode(), {**headers, "x-amzn-RequestId": REQUEST_ID})
    said = f"<Code>{escape(code.removesuffix('Exception'))}</Code><Message>{escape(message)}</Message>"
    xml = f"<ErrorResponse><Error><Type>Sender</Type>{said}</Error><RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"
    return Answer(status or 403, xml.encode(), {"Content-Type": "text/xml", "x-amzn-RequestId": REQUEST_ID})


def _form(request: Received) -> dict[str, str]:
    return dict(parse_qsl(request.body.decode()))
