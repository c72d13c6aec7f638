"""A storage whose keys end, and the catalogs that give them out."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import pytest

from lance_ns_async import Namespace
from tests.fakes.faults import Answer, Received
from tests.fakes.polaris import FakePolaris
from tests.fakes.polaris.routes import VENDING, PolarisRoutes
from tests.fakes.s3 import FakeS3
from tests.fakes.unity import FakeUnity

Impl = Literal["polaris", "unity"]

LEAD = 2000
"""Milliseconds before a key's end at which Lance asks for the next: what a slow machine may dawdle without harm."""

LIFE = 3000
"""Milliseconds that a key is good for."""

# As AWS answers keys of the past.
_EXPIRED = Answer.of(b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>", 400)


@dataclass(frozen=True, slots=True)
class Key:
    """An access key that a catalog gave out; times are milliseconds of the machine's clock, which Lance reads, too."""

    id: str
    given: int
    until: int


class Keys:
    """What was given out so far: each key is another, and good for `life` milliseconds."""

    def __init__(self, life: int = LIFE) -> None:
        self._life = life
        self._lock = Lock()
        self.given: list[Key] = []

    def give(self) -> Key:
        """The next key."""
        with self._lock:
            now = _now()
            key = Key(f"KEY{len(self.given):04}", now, now + self._life)
            self.given.append(key)
        return key

    def is_good(self, id: str) -> bool:
        """Whether there is such a key, and it has not ended yet."""
        with self._lock:
            return any(key.id == id and _now() < key.until for key in self.given)


class KeyedS3(FakeS3):
    """An S3 that refuses whoever shows no key, or one that has ended."""

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._keys = keys
        self.shown: list[str] = []
        """The ids of the keys by which requests were let in."""
        self.refused = 0
        """How many were not."""

    @property
    def place(self) -> dict[str, str]:
        """What Lance needs to find it, and no key."""
        return {key: value for key, value in self.options.items() if "key" not in key}

    def opened_by(self, key: Key) -> dict[str, str]:
        """What Lance needs to reach it with that key and no other."""
        return {**self.options, "aws_access_key_id": key.id}

    def handle(self, request: Received) -> Answer:
        if not request.path.startswith("/lake/") and "list-type" not in request.path:
            return super().handle(request)
        shown = re.search(r"Credential=(\w+)/", request.headers.get("Authorization", ""))
        if shown is None or not self._keys.is_good(shown[1]):
            self.refused += 1
            return _EXPIRED
        self.shown.append(shown[1])
        return super().handle(request)


class VendingPolaris(FakePolaris):
    """A Polaris that gives out a new key each time it is asked for one."""

    def __init__(self, keys: Keys, s3: FakeS3) -> None:
        super().__init__(credential=None, base="s3://lake")
        self._keys = keys
        self._s3 = s3
        self.add_namespace("cat", ("a",))

    def handle(self, request: Received) -> Answer:
        if VENDING in request.headers:
            vends = [{"prefix": "s3://lake", "config": self._config()}]
            self._routes = PolarisRoutes(self._catalogs, paging=False, table_page=None, vends=vends)
        return super().handle(request)

    def _config(self) -> dict[str, str]:
        key = self._keys.give()
        return {
            "s3.access-key-id": key.id,
            "s3.secret-access-key": "hush",
            "s3.endpoint": self._s3.url,
            "client.region": "us-east-1",
            "s3.session-token-expires-at-ms": str(key.until),
        }


class VendingUnity(FakeUnity):
    """A Unity Catalog that gives out a new key each time it is asked for one."""

    def __init__(self, keys: Keys) -> None:
        super().__init__(catalog="cat", credentials=_NewEachTime(keys))
        self.add_schema("cat", "a")


class _NewEachTime(Mapping[str, Any]):
    """What Unity Catalog answers who asks for credentials: another key each time it is read."""

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
    """An S3 and the catalog that gives out its keys."""

    impl: Impl
    keys: Keys
    s3: KeyedS3
    catalog: VendingPolaris | VendingUnity
    id: tuple[str, ...] = ("cat", "a", "t")
    """Where a table may be made."""

    @property
    def properties(self) -> dict[str, str]:
        """What a namespace is to be told; its limits are the usual ones, its patience is not."""
        # Unity Catalog gives out no more than keys, and Lance asks for those only if it knows the place.
        given = {**self.s3.place, "refresh_offset_millis": str(LEAD)}
        stored = {f"storage.{key}": value for key, value in given.items()}
        root = {"root": "s3://lake"} if self.impl == "unity" else {}
        return {**self.catalog.properties, **root, **stored, "backoff_initial": "1ms", "backoff_max": "2ms"}

    def connect(self, **more: str) -> Namespace:
        return Namespace.connect(self.impl, {**self.properties, **more})

    @property
    def asked(self) -> int:
        """How many requests wanted a key, in vain or not."""
        if self.impl == "unity":
            return sum("temporary-table-credentials" in request.path for request in self.catalog.requests)
        return sum(VENDING in request.headers for request in self.catalog.requests)

    def refuse(self, status: int) -> None:
        """Answers with that status whoever wants a key, and those who write, until the catalog is healed."""
        route = "temporary-table-credentials" if self.impl == "unity" else "GET .*/generic-tables/t$"
        self.catalog.fail(status, times=None, match=route)


@contextmanager
def vending(impl: Impl, *, life: int = LIFE) -> Iterator[VendingLake]:
    """A lake whose keys are good for so many milliseconds."""
    keys = Keys(life)
    with ExitStack() as stack:
        # Who is given no key must fail, and not look for one on the machine.
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        s3 = stack.enter_context(KeyedS3(keys))
        catalog = VendingUnity(keys) if impl == "unity" else VendingPolaris(keys, s3)
        stack.enter_context(catalog)
        yield VendingLake(impl, keys, s3, catalog)


def _now() -> int:
    return time.time_ns() // 1_000_000
