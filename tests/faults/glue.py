"""The correct responses of an AWS Glue Data Catalog."""

from __future__ import annotations

import json
import re
from asyncio import StreamReader
from collections.abc import Mapping, Sequence
from typing import Any

from tests.fakes.certificates import authority
from tests.fakes.sockets import http, read_request
from tests.faults.backends import FINE, SECRET, TABLE_NAMES, UNREACHABLE, Catalog, location


class Glue(Catalog):
    impl = "glue"
    levels = ()

    def properties(self, url: str) -> Mapping[str, str]:
        return {
            "endpoint": url,
            "region": "us-east-1",
            "access_key_id": "AKIAEXAMPLE",
            "secret_access_key": f"key-{SECRET}",
            "session_token": f"session-{SECRET}",
            # Loading the default authorities would exceed the time of an attempt.
            "ca_bundle": authority().bundle,
            "storage.secret_access_key": f"storage-{SECRET}",
            **UNREACHABLE,
        }

    async def read(self, reader: StreamReader) -> bytes:
        return await read_request(reader)

    def is_write(self, request: bytes) -> bool:
        return b"AWSGlue.CreateTable" in request

    def answer(self, request: bytes, *, acting: bool = True) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        target = re.search(rb"(?i)x-amz-target: AWSGlue\.(\w+)", head)
        assert target is not None, head
        status, answer = self._look_up(target[1].decode(), json.loads(body), acting)
        return http(status, json.dumps(answer), {"Content-Type": "application/x-amz-json-1.1"}).data

    def _look_up(self, action: str, content: Any, acting: bool) -> tuple[int, Any]:
        database = content.get("DatabaseName", "")
        match action:
            case "CreateTable":
                if acting:
                    self.declarations[content["TableInput"]["Name"]] = content["TableInput"]
                return 200, {}
            case "GetTable" if self.has(content["Name"]):
                return 200, {"Table": self.declarations.get(content["Name"]) or self._table(database, content["Name"])}
            case "GetTables":
                names = content["Expression"].split("|") if "Expression" in content else TABLE_NAMES
                return 200, {"TableList": [self._table(database, name) for name in names]}
            case "GetDatabase":
                return 200, {"Database": {"Name": content["Name"]}}
        return 400, {"__type": "EntityNotFoundException", "Message": "Entity Not Found"}

    def is_listing(self, request: bytes) -> bool:
        return b"AWSGlue.GetTables" in request

    def page(self, names: Sequence[str], token: object = None) -> bytes:
        tables = [self._table(FINE, name) for name in names]
        return http(200, json.dumps({"TableList": tables, "NextToken": token})).data

    def _table(self, database: str, name: str) -> Any:
        return {
            "Name": name,
            "DatabaseName": database,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"table_type": "lance"},
            "StorageDescriptor": {"Location": location(database, name)},
        }
