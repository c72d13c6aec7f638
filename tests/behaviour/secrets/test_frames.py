"""Local variables of failing connects, which error collectors record for each frame of a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import AsyncNamespace, Namespace, registry
from lance_ns_async.registry import CLASS_PATHS
from lance_ns_async.spark import LocationResolver

SECRET = "hush-hush-7"

SECRETS: Mapping[str, Mapping[str, str]] = {
    "dir": {},
    "glue": {"secret_access_key": SECRET},
    "hive2": {"sasl_password": SECRET},
    "hive3": {"sasl_password": SECRET},
    "iceberg": {"credential": f"id:{SECRET}"},
    "lakekeeper": {"auth_token": SECRET},
    "polaris": {"credential": f"id:{SECRET}"},
    "rest": {"header.x-api-key": SECRET},
    "unity": {"auth_token": SECRET},
}

WRONG: Mapping[str, Mapping[str, str]] = {
    "unknown": {"unknown": SECRET},
    "invalid": {"max_in_flight": SECRET},
    "proxy": {"proxy": f"ftp://user:{SECRET}@host"},
    "bundle": {"ca_bundle": "/no/such/file"},
}


def variables(error: BaseException) -> Iterator[tuple[str, str, object]]:
    """Yields function, name and value of the local variables of the package in all frames of an error."""
    chain: BaseException | None = error
    while chain is not None:
        frame = chain.__traceback__
        while frame is not None:
            if "/lance_ns_async/" in frame.tb_frame.f_code.co_filename:
                for name, value in frame.tb_frame.f_locals.items():
                    yield frame.tb_frame.f_code.co_qualname, name, value
            frame = frame.tb_next
        chain = chain.__cause__ or chain.__context__


def by_class(impl: str, properties: Mapping[str, str]) -> Any:
    module, _, name = CLASS_PATHS[impl].rpartition(".")
    return getattr(__import__(module), name)(**properties)


CONNECT: Mapping[str, Callable[[str, Mapping[str, str]], Any]] = {
    "async": AsyncNamespace.connect,
    "sync": Namespace.connect,
    "init": lambda impl, properties: Namespace(impl=impl, properties=properties),
    "positional": Namespace,
    "spark": LocationResolver.connect,
    "class": by_class,
}


@pytest.mark.parametrize("connect", CONNECT)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("impl", registry.BACKENDS)
def test_no_variable_of_a_failing_connect_shows_a_secret(impl: str, wrong: str, connect: str) -> None:
    properties = {**registry.BACKENDS[impl].example, **SECRETS[impl], "storage.secret": SECRET, **WRONG[wrong]}
    with pytest.raises(InvalidInputError) as raised:
        CONNECT[connect](impl, properties)
    frame_variables = list(variables(raised.value))
    assert frame_variables and SECRET not in str(raised.value)
    assert [(function, name) for function, name, value in frame_variables if SECRET in repr(value)] == []


@pytest.mark.parametrize("connect", ["async", "sync", "spark"])
def test_a_text_in_place_of_properties_is_not_shown(connect: str) -> None:
    with pytest.raises(InvalidInputError, match="this is a str") as raised:
        CONNECT[connect]("dir", f"root={SECRET}")  # type: ignore[arg-type]
    assert [name for _, name, value in variables(raised.value) if SECRET in repr(value)] == []
