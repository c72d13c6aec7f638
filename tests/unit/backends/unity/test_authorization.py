"""A Unity server with authorization: it checks a location before the name, and refuses one that is in use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace import CreateTableRequest, RegisterTableRequest
from lance_namespace.errors import PermissionDeniedError, TableAlreadyExistsError

from lance_ns_async import AsyncNamespace
from tests.fakes.unity import FakeUnity
from tests.support.unity import connected, declared, list_requests

ID = ["main", "a", "t"]


@dataclass
class Place:
    """A server whose users need tokens, a client of its owner, and the folder of the tables."""

    server: FakeUnity
    ns: AsyncNamespace
    root: Path

    @property
    def location(self) -> str:
        """The default location of the table."""
        return self.root.joinpath(*ID).as_uri()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    with FakeUnity(authorization=["owner"]) as server:
        server.add_schema("main", "a")
        async with connected(server, root=str(tmp_path)) as ns:
            yield Place(server, ns, tmp_path)


def rows() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"id": [1]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("location", [None, "s3://elsewhere/t"])
async def test_a_name_that_is_taken_exists(place: Place, location: str | None) -> None:
    await declared(place.ns, *ID)
    with pytest.raises(TableAlreadyExistsError):
        await declared(place.ns, *ID, location=location)


async def test_registering_a_name_that_is_taken_finds_it(place: Place) -> None:
    await declared(place.ns, *ID)
    with pytest.raises(TableAlreadyExistsError):
        await place.ns.register_table(RegisterTableRequest(id=ID, location=place.location))


async def test_exist_ok_keeps_the_table(place: Place) -> None:
    await place.ns.create_table(CreateTableRequest(id=ID), rows())
    await place.ns.create_table(CreateTableRequest(id=ID, mode="ExistOk"), rows())
    assert (await place.ns.describe_tables([ID])).tables


async def test_a_location_of_another_table_is_denied(place: Place) -> None:
    location = (await declared(place.ns, *ID)).location
    with pytest.raises(PermissionDeniedError, match="Access denied"):
        await declared(place.ns, "main", "a", "other", location=f"{location}/inside")


async def test_without_rights_a_declaration_is_denied_after_two_calls(place: Place) -> None:
    place.server.allow("reader", "main.a.seen")
    async with connected(place.server, auth_token="reader", root=str(place.root)) as ns:
        place.server.clear()
        with pytest.raises(PermissionDeniedError, match="Access denied"):
            await declared(ns, *ID)
    assert list_requests(place.server) == ["POST tables", "GET tables/main.a.t"]
