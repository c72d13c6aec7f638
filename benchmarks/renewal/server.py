"""A storage and a catalog whose keys expire, for another process."""

from __future__ import annotations

import re
from multiprocessing.connection import Connection
from time import time

import pyarrow as pa

from tests.fakes.s3 import EXPIRED, KeyedS3, RenewingPolaris
from tests.fakes.server import Answer, Received

FRAGMENTS, ROWS = 4, 40  # Of each table


class ExpiringS3(KeyedS3):
    """An S3 that refuses vended keys from the moment at which they expire."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[str, float] = {}
        self.refused = 0
        self.seconds = 0.0
        """The delay of each request, which was sent so long ago."""

    def handle(self, request: Received) -> Answer:
        key = re.search(r"Credential=(KEY\d+)/", request.headers.get("Authorization", ""))
        if key is not None and time() - self.seconds >= self.ends[key[1]]:
            self.refused += 1
            return EXPIRED
        return super().handle(request)


class Catalog(RenewingPolaris):
    """A catalog whose keys the S3 refuses after their end."""

    def __init__(self, s3: ExpiringS3) -> None:
        super().__init__(s3)
        self._ends = s3.ends

    def give(self) -> tuple[str, int]:
        key, until = super().give()
        self._ends[key] = until / 1000
        return key, until


def serve(connection: Connection, tables: int) -> None:
    """Serves the storage and the catalog, and receives the lifetime of keys and the delay of the storage."""
    with ExpiringS3() as s3, Catalog(s3) as catalog:
        catalog.write_tables(tables, pa.table({"id": range(ROWS)}), "c.db", max_rows_per_file=ROWS // FRAGMENTS)
        connection.send(catalog.properties)
        while (change := connection.recv()) is not None:
            catalog.lasts, s3.seconds = change
            s3.heal()
            if s3.seconds:
                s3.delay(s3.seconds)
            connection.send((len(catalog.issued), s3.refused))
