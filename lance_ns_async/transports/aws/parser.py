"""Parser that returns responses of JSON services as plain JSON, several times faster than botocore's own parser."""

from __future__ import annotations

from typing import Any

import orjson
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory, AioRestJSONParser
from botocore.parsers import ResponseParserError

_ERROR_MEMBERS = ("__type", "message", "Message")


class _PlainJson:
    """Parses successful responses as plain JSON, with times as numbers and with unknown members.

    botocore parses the errors.
    """

    async def parse(self, response: Any, shape: Any) -> Any:
        if response["status_code"] != 200 or (shape is not None and shape.event_stream_name):
            return await super().parse(response, shape)  # type: ignore[misc]  # that of the parser
        body = response["body"]
        if not isinstance(body, bytes):
            body = await body
        try:
            content = orjson.loads(body) if body else {}
        except ValueError as e:
            raise ResponseParserError(str(e)) from e
        if not isinstance(content, dict):
            raise ResponseParserError(f"a {type(content).__name__} instead of an object")
        headers = response["headers"]
        content["ResponseMetadata"] = {
            "HTTPStatusCode": 200,
            "HTTPHeaders": headers,
            "RequestId": headers.get("x-amzn-requestid"),
        }
        return content

    def _parse_body_as_json(self, body_contents: bytes) -> Any:
        """Returns the members of an error, or its text if it is not a JSON object.

        botocore itself fails on error formats that no service of AWS uses.
        """
        try:
            members = orjson.loads(body_contents) if body_contents else {}
        except ValueError:
            members = None
        if not isinstance(members, dict):
            return {"message": body_contents.decode("utf-8", "replace")}
        return {name: value for name, value in members.items() if name not in _ERROR_MEMBERS or isinstance(value, str)}


class PlainJsonParser(_PlainJson, AioJSONParser):  # type: ignore[misc]  # the package ships no types
    """Parses responses of services like Glue."""


class PlainRestJsonParser(_PlainJson, AioRestJSONParser):  # type: ignore[misc]  # the package ships no types
    """Parses responses of services like Lake Formation, whose operations are paths; members in headers are omitted."""


class PlainJsonParsers(AioResponseParserFactory):  # type: ignore[misc]  # the package ships no types
    """Factory of parsers: plain JSON for JSON, botocore's parsers for all other protocols."""

    def create_parser(self, protocol_name: str) -> Any:
        if protocol_name == "json":
            return PlainJsonParser(**self._defaults)
        if protocol_name == "rest-json":
            return PlainRestJsonParser(**self._defaults)
        return super().create_parser(protocol_name)
