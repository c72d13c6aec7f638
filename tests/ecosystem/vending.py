"""A storage whose keys expire, and the catalogs that vend them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import pyarrow as pa
import pytest
from lance.optimize import Compaction

from lance_ns_async import Namespace
from tests.fakes import s3 as fakes
from tests.fakes.polaris.routes import VENDING
from tests.fakes.s3 import EXPIRED, FakeS3, RenewingPolaris
from tests.fakes.server import Answer, Received
from tests.fakes.unity import FakeUnity

Impl = Literal["polaris", "unity"]
LEAD = 2000  # Milliseconds before the expiry of a key at which Lance requests the next one; enough for a slow machine
LIFE = 3000  # Milliseconds for which a key is valid


@dataclass(frozen=True, slots=True)
class Key:
    """An access key that a catalog has vended; times are milliseconds of the machine's clock, as Lance reads it."""

    id: str
    issued_at: int
    until: int


class Keys:
    """The vended keys: each one is different, and valid for `life` milliseconds."""

    def __init__(self, life: int = LIFE) -> None:
        self._life = life
        self._lock = Lock()
        self.issued: list[Key] = []

    def give(self) -> Key:
        with self._lock:
            now = _now()
            key = Key(f"KEY{len(self.issued):04}", now, now + self._life)
            self.issued.append(key)
        return key

    def is_good(self, id: str) -> bool:
        with self._lock:
            return any(key.id == id and _now() < key.until for key in self.issued)


class KeyedS3(FakeS3):
    """An S3 that refuses requests without a key, or with an expired one."""

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._keys = keys
        self.shown: list[str] = []  # The ids of the keys of accepted requests
        self.refused = 0  # The number of refused requests

    @property
    def place(self) -> dict[str, str]:
        """Returns the storage options by which Lance finds the storage, without a key."""
        return {key: value for key, value in self.options.items() if "key" not in key}

    def opened_by(self, key: Key) -> dict[str, str]:
        return {**self.options, "aws_access_key_id": key.id}

    def handle(self, request: Received) -> Answer:
        if not request.path.startswith("/lake/") and "list-type" not in request.path:
            return super().handle(request)
        shown = re.search(r"Credential=(\w+)/", request.headers.get("Authorization", ""))
        if shown is None or not self._keys.is_good(shown[1]):
            self.refused += 1
            return EXPIRED
        self.shown.append(shown[1])
        return super().handle(request)


class VendingPolaris(RenewingPolaris):
    """A Polaris that vends a new key for each request."""

    def __init__(self, keys: Keys, s3: FakeS3) -> None:
        super().__init__(s3)
        self._keys = keys
        self.add_namespace("cat", ("a",))

    def give(self) -> tuple[str, int]:
        key = self._keys.give()
        return key.id, key.until


class _NewEachTime(Mapping[str, Any]):
    """The response of Unity Catalog to a request for credentials, with another key each time it is read."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._last: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        key = self._keys.give()
        parts = {"access_key_id": key.id, "secret_access_key": "hush", "session_token": "token"}
        self._last = {"aws_temp_credentials": parts, "expiration_time": key.until}
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def __getitem__(self, name: str) -> Any:
        return self._last[name]


@dataclass(frozen=True)
class VendingLake:
    """An S3, and the catalog that vends its keys."""

    impl: Impl
    keys: Keys
    s3: KeyedS3
    catalog: VendingPolaris | FakeUnity
    id: tuple[str, ...] = ("cat", "a", "t")  # The id of a new table

    @property
    def properties(self) -> dict[str, str]:
        """Returns the properties of a namespace, with the default limits but shorter time-outs."""
        # Unity Catalog vends only keys, and Lance requests them only if it knows the location.
        options = {**self.s3.place, "refresh_offset_millis": str(LEAD)}
        stored = {f"storage.{key}": value for key, value in options.items()}
        root = {"root": "s3://lake"} if self.impl == "unity" else {}
        return {**self.catalog.properties, **root, **stored, "backoff_initial": "1ms", "backoff_max": "2ms"}

    def connect(self, **more: str) -> Namespace:
        return Namespace.connect(self.impl, {**self.properties, **more})

    @property
    def key_requests(self) -> int:
        """Returns the number of requests for keys, including refused ones."""
        if self.impl == "unity":
            return sum("temporary-table-credentials" in request.path for request in self.catalog.requests)
        return sum(VENDING in request.headers for request in self.catalog.requests)

    def refuse(self, status: int) -> None:
        """Answers requests for keys, and writes, with that status, until the catalog is healed."""
        route = "temporary-table-credentials" if self.impl == "unity" else "GET .*/generic-tables/t$"
        self.catalog.fail(status, times=None, match=route)


@contextmanager
def vending(impl: Impl, *, life: int = LIFE) -> Iterator[VendingLake]:
    """Provides a lake whose keys are valid for a number of milliseconds."""
    keys = Keys(life)
    with ExitStack() as stack:
        # A client without a vended key must fail, and not look for a key on the machine.
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("AWS_EC2_METADATA_DISABLED", "true")
        s3 = stack.enter_context(KeyedS3(keys))
        if impl == "unity":
            unity = stack.enter_context(FakeUnity(catalog="cat", credentials=_NewEachTime(keys)))
            unity.add_schema("cat", "a")
            yield VendingLake(impl, keys, s3, unity)
        else:
            yield VendingLake(impl, keys, s3, stack.enter_context(VendingPolaris(keys, s3)))


@contextmanager
def revocable(rows: pa.Table, **properties: str) -> Iterator[tuple[Namespace, Callable[[], None]]]:
    """Provides a catalog with the table `shop.db.t0000`, a fragment for each row, and what revokes all issued keys.

    Each request gets another key. All keys are also revoked after the plan of a compaction.
    """
    with ExitStack() as stack:
        s3 = stack.enter_context(fakes.KeyedS3())
        catalog = stack.enter_context(RenewingPolaris(s3))
        catalog.lasts = 0.0
        catalog.write_tables(1, rows, max_rows_per_file=1)
        plan = Compaction.plan

        def plan_and_revoke(*arguments: Any) -> Any:
            planned = plan(*arguments)
            s3.revoked.update(catalog.issued)
            return planned

        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setattr(Compaction, "plan", plan_and_revoke)
        ns = stack.enter_context(Namespace.connect("polaris", {**catalog.properties, **properties}))
        yield ns, lambda: s3.revoked.update(catalog.issued)


def _now() -> int:
    return time.time_ns() // 1_000_000
