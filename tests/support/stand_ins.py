"""Replacements of the catalogs in the documentation's code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lance_ns_async import registry
from tests.documentation.pages import Block
from tests.fakes.glue import FakeGlue
from tests.fakes.hive3 import FakeHive
from tests.fakes.http import FakeServer
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.lakekeeper import FakeLakekeeper
from tests.fakes.polaris import FakePolaris
from tests.fakes.rest import FakeRest
from tests.fakes.unity import FakeUnity
from tests.servers.s3 import s3

_S3_KEYS = {
    "s3.access-key-id": "id",
    "s3.secret-access-key": "secret",
    "s3.session-token": "token",
    "s3.session-token-expires-at-ms": "1795224088134",
    "client.region": "eu-central-1",
}
_UNITY_KEYS = {"access_key_id": "id", "secret_access_key": "secret", "session_token": "token"}


@contextmanager
def stand_ins(blocks: Iterable[Block]) -> Iterator[Mapping[str, str]]:
    """Starts the servers of the code; returns for each placeholder the text that replaces it."""
    code = "\n".join(block.source for block in blocks if block.is_code and block.is_run)
    with ExitStack() as stack:
        yield {written: stack.enter_context(start()) for written, start in _SERVERS.items() if written in code}


@contextmanager
def _glue() -> Iterator[str]:
    """AWS has fixed addresses, so environment variables redirect the client."""
    with FakeGlue(region="eu-central-1") as server, pytest.MonkeyPatch.context() as environment:
        server.add_nested_catalog("analytics/eu")
        for service in ("GLUE", "LAKEFORMATION", "STS"):
            environment.setenv(f"AWS_ENDPOINT_URL_{service}", server.endpoint)
        environment.setenv("AWS_ACCESS_KEY_ID", server.properties["access_key_id"])
        environment.setenv("AWS_SECRET_ACCESS_KEY", server.properties["secret_access_key"])
        yield _GLUE


@contextmanager
def _hive() -> Iterator[str]:
    with FakeHive(schemes={"s3"}) as server:
        yield server.uri


@contextmanager
def _iceberg() -> Iterator[str]:
    vends = [{"prefix": "s3://bucket", "config": _S3_KEYS}]
    with FakeIceberg(vends=vends) as server:
        yield server.endpoint


@contextmanager
def _with_token() -> Iterator[str]:
    with FakeIceberg(token="a-token") as server:
        yield server.endpoint


@contextmanager
def _lakekeeper() -> Iterator[str]:
    vends = [{"prefix": "s3://bucket", "config": _S3_KEYS}]
    with FakeLakekeeper(vends=vends) as server:
        yield server.endpoint


@contextmanager
def _moto() -> Iterator[str]:
    """Provides all services of moto on one port."""
    with TemporaryDirectory() as logs, s3(Path(logs), "bucket") as server:
        yield server.endpoint


@contextmanager
def _polaris() -> Iterator[str]:
    vends = [{"prefix": "s3://bucket", "config": _S3_KEYS}]
    with FakePolaris(credential=("my-client", "my-secret"), base="s3://bucket", vends=vends) as server:
        server.add_catalog("lake")
        yield server.endpoint


@contextmanager
def _unity() -> Iterator[str]:
    keys = {"aws_temp_credentials": _UNITY_KEYS, "expiration_time": 1795224088134}
    with FakeUnity(catalog="main", credentials=keys) as server:
        yield server.endpoint


@contextmanager
def _rest() -> Iterator[str]:
    with FakeRest(credentials=_LANCE_KEYS) as server:
        yield server.url


def _fake(impl: str) -> Callable[[], AbstractContextManager[str]]:
    """Returns a function that starts the HTTP fake of a backend without arguments."""

    @contextmanager
    def start() -> Iterator[str]:
        module = import_module(f"tests.fakes.{impl}")
        fakes = [it for it in vars(module).values() if isinstance(it, type) and it.__module__ == module.__name__]
        fake: Callable[[], FakeServer] = next(it for it in fakes if issubclass(it, FakeServer))
        with fake() as server:
            yield server.url

    return start


_LANCE_KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "hush", "expires_at_millis": "1795224088134"}

_GLUE = '"glue"'
_SERVERS: Mapping[str, Callable[[], AbstractContextManager[str]]] = {
    # The address in the example of a backend is replaced by that of its fake. The fakes below need arguments.
    **{it.example["endpoint"]: _fake(impl) for impl, it in registry.BACKENDS.items() if "endpoint" in it.example},
    _GLUE: _glue,
    "thrift://metastore.example.com:9083": _hive,
    "http://127.0.0.1:5055": _moto,
    "https://catalog.example.com": _iceberg,
    "https://secured.example.com": _with_token,
    "https://lakekeeper.example.com": _lakekeeper,
    "https://polaris.example.com": _polaris,
    "https://unity.example.com": _unity,
    "https://lance.example.com": _rest,
}
