"""Answers of JSON services as plain JSON, which is several times faster than the shapes botocore builds."""

from __future__ import annotations

from typing import Any

import orjson
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory
from botocore.parsers import ResponseParserError

_TOLD = ("__type", "message", "Message")


class PlainJsonParser(AioJSONParser):  # type: ignore[misc]  # the package ships no types
    """Gives what the JSON of a good answer says; times stay numbers, unknown members stay. Errors are botocore's."""

    async def parse(self, response: Any, shape: Any) -> Any:
        if response["status_code"] != 200 or (shape is not None and shape.event_stream_name):
            return await super().parse(response, shape)
        body = response["body"]
        if not isinstance(body, bytes):
            body = await body
        try:
            parsed = orjson.loads(body) if body else {}
        except ValueError as e:
            raise ResponseParserError(str(e)) from e
        if not isinstance(parsed, dict):
            raise ResponseParserError(f"a {type(parsed).__name__} where an object is wanted")
        headers = response["headers"]
        parsed["ResponseMetadata"] = {
            "HTTPStatusCode": 200,
            "HTTPHeaders": headers,
            "RequestId": headers.get("x-amzn-requestid"),
        }
        return parsed

    def _parse_body_as_json(self, body_contents: bytes) -> Any:
        """The members of an error, or its text where it has none: botocore fails on what no service of AWS says."""
        try:
            told = orjson.loads(body_contents) if body_contents else {}
        except ValueError:
            told = None
        if not isinstance(told, dict):
            return {"message": body_contents.decode("utf-8", "replace")}
        return {name: value for name, value in told.items() if name not in _TOLD or isinstance(value, str)}


class PlainJsonParsers(AioResponseParserFactory):  # type: ignore[misc]  # the package ships no types
    """Parsers for each protocol: ours for JSON, botocore's for all others."""

    def create_parser(self, protocol_name: str) -> Any:
        if protocol_name == "json":
            return PlainJsonParser(**self._defaults)
        return super().create_parser(protocol_name)
