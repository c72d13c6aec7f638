"""Registry of the backends: lazy loading by name, and class paths for `lance_namespace.connect`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

import lance_namespace
from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import suggest


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """How a backend is loaded and presented."""

    module: str
    name: str
    """The class in the module."""
    title: str
    """The name of the catalog, for tables and messages."""
    summary: str = ""
    """The docstring of the class with the catalog's name."""
    example: Mapping[str, str] = field(default_factory=dict)
    """Properties that connect to an imaginary catalog of this kind. Creating the client makes no call."""
    extra: str | None = None
    """The extra of the distribution that the backend needs; None if it needs none."""


_AROUND = re.compile(r"^lance_ns_async\.(namespace\.sync\.)?|^lance[-_]ns[-_]|(Namespace|Backend)$")

BACKENDS: Mapping[str, BackendEntry] = {
    "dir": BackendEntry(
        "lance_ns_async.backends.directory.backend",
        "DirectoryBackend",
        "Directory",
        'The directory catalog, for example `DirNamespace(root="lake")`. Properties: `root`, `storage.*` and limits.',
        {"root": "lake"},
    ),
    "iceberg": BackendEntry(
        "lance_ns_async.backends.iceberg.backend",
        "IcebergBackend",
        "Iceberg",
        "An Iceberg REST catalog. Properties: `endpoint`, `warehouse`, `auth_token`, `credential` and others.",
        {"endpoint": "https://catalog.example.com"},
    ),
    "hive3": BackendEntry(
        "lance_ns_async.backends.hive3.backend",
        "HiveBackend",
        "Hive 3",
        "A Hive 3.x Metastore. Properties: `uri`, `root`, `client.pool-size`, `ugi` and others.",
        {"uri": "thrift://metastore.example.com:9083"},
    ),
    "hive2": BackendEntry(
        "lance_ns_async.backends.hive3.backend",
        "Hive2Backend",
        "Hive 2",
        "A Hive 2.3 Metastore, without catalogs. Properties: `uri`, `root`, `client.pool-size`, `ugi` and others.",
        {"uri": "thrift://metastore.example.com:9083"},
    ),
    "glue": BackendEntry(
        "lance_ns_async.backends.glue.backend",
        "GlueBackend",
        "Glue",
        "The AWS Glue Data Catalog. Properties: `region`, `catalog_id`, `assume_role_arn` and others.",
        {"region": "eu-central-1"},
        extra="glue",
    ),
    "polaris": BackendEntry(
        "lance_ns_async.backends.polaris.backend",
        "PolarisBackend",
        "Polaris",
        "An Apache Polaris server. Properties: `endpoint`, `auth_token`, `credential` and others.",
        {"endpoint": "https://polaris.example.com"},
    ),
    "lakekeeper": BackendEntry(
        "lance_ns_async.backends.lakekeeper.backend",
        "LakekeeperBackend",
        "Lakekeeper",
        "A warehouse of a Lakekeeper server. Properties: `endpoint`, `warehouse`, `auth_token` and others.",
        {"endpoint": "https://lakekeeper.example.com", "warehouse": "lake"},
    ),
    "unity": BackendEntry(
        "lance_ns_async.backends.unity.backend",
        "UnityBackend",
        "Unity",
        "One catalog of a Unity Catalog server. Properties: `endpoint`, `catalog`, `auth_token` and others.",
        {"endpoint": "https://unity.example.com", "catalog": "main"},
    ),
    "rest": BackendEntry(
        "lance_ns_async.backends.rest.backend",
        "RestBackend",
        "REST",
        "A server of the Lance REST protocol. Properties: `uri`, `delimiter`, `header.*`, `tls.*` and others.",
        {"uri": "https://lance.example.com"},
    ),
}
"""The backends by the name that `connect` takes."""


def load(impl: str) -> type[Backend]:
    """Returns the backend class with a name.

    Raises:
        InvalidInputError: The name is unknown, or the extra is not installed.
    """
    if (entry := BACKENDS.get(impl)) is None:
        raise InvalidInputError(f"impl {impl!r}: unknown; {suggest(_plain_name(impl), BACKENDS, quoted=True)}")
    try:
        module = import_module(entry.module)
    except ModuleNotFoundError as e:
        if entry.extra is None:
            raise
        raise InvalidInputError(
            f"impl {impl!r} needs: pip install 'lance-ns-async[{entry.extra}]' (no module named {e.name})"
        ) from e
    cls: type[Backend] = getattr(module, entry.name)
    return cls


def _plain_name(impl: str) -> str:
    """Returns the backend that a class path or a longer name contains; the stripped name if there is none."""
    word = _AROUND.sub("", impl).lower()
    return next((name for name in BACKENDS if word.startswith(name)), word)


CLASS_PATHS: Mapping[str, str] = {impl: f"lance_ns_async.{impl.capitalize()}Namespace" for impl in BACKENDS}
"""Class paths by backend name; `lance_namespace.connect` accepts them in every process, without registration."""

_RESERVED = ("dir", "rest")  # Names that the spec's own package reserves.


def register(*, plain: bool = False) -> Mapping[str, str]:
    """Registers names such as `lance-ns-glue` with `lance_namespace.connect` in this process.

    Worker processes of Ray, Daft or Spark do not have the registration: use the class path there.

    Args:
        plain: Whether to register `glue`, `hive2`, `hive3`, `iceberg`, `lakekeeper`, `polaris` and `unity`, too. Other
            packages may register the same names; the last registration wins.

    Returns:
        The registered names, with their class paths.
    """
    names = {f"lance-ns-{impl}": path for impl, path in CLASS_PATHS.items()}
    if plain:
        names |= {impl: path for impl, path in CLASS_PATHS.items() if impl not in _RESERVED}
    for name, path in names.items():
        lance_namespace.register_namespace_impl(name, path)
    return names
