"""Registry of the backends: lazy loading by name, and class paths for `lance_namespace.connect`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import lance_namespace
from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import suggest


@dataclass(frozen=True, slots=True)
class Entry:
    """The module and class of a backend, and the extra of the distribution that it needs."""

    module: str
    name: str
    extra: str | None = None


_AROUND = re.compile(r"^lance_ns_async\.(namespace\.sync\.)?|^lance[-_]ns[-_]|(Namespace|Backend)$")

BACKENDS: Mapping[str, Entry] = {
    "dir": Entry("lance_ns_async.backends.directory.backend", "DirectoryBackend"),
    "iceberg": Entry("lance_ns_async.backends.iceberg.backend", "IcebergBackend"),
    "hive3": Entry("lance_ns_async.backends.hive3.backend", "HiveBackend"),
    "glue": Entry("lance_ns_async.backends.glue.backend", "GlueBackend", extra="glue"),
    "polaris": Entry("lance_ns_async.backends.polaris.backend", "PolarisBackend"),
    "lakekeeper": Entry("lance_ns_async.backends.lakekeeper.backend", "LakekeeperBackend"),
    "unity": Entry("lance_ns_async.backends.unity.backend", "UnityBackend"),
    "rest": Entry("lance_ns_async.backends.rest.backend", "RestBackend"),
}


def load(impl: str) -> type[Backend]:
    """Returns the backend class with a name.

    Raises:
        InvalidInputError: The name is unknown, or the extra is not installed.
    """
    if (entry := BACKENDS.get(impl)) is None:
        raise InvalidInputError(f"backend {impl!r}: unknown; {suggest(_plain_name(impl), BACKENDS, quoted=True)}")
    try:
        module = import_module(entry.module)
    except ModuleNotFoundError as e:
        if entry.extra is None:
            raise
        raise InvalidInputError(
            f"backend {impl!r} needs: pip install 'lance-ns-async[{entry.extra}]' (no module named {e.name})"
        ) from e
    cls: type[Backend] = getattr(module, entry.name)
    return cls


def _plain_name(impl: str) -> str:
    """Returns the backend that a class path or a longer name contains; the stripped name if there is none."""
    word = _AROUND.sub("", impl).lower()
    return next((name for name in BACKENDS if word.startswith(name)), word)


CLASS_PATHS: Mapping[str, str] = {
    "dir": "lance_ns_async.DirNamespace",
    "glue": "lance_ns_async.GlueNamespace",
    "hive3": "lance_ns_async.Hive3Namespace",
    "iceberg": "lance_ns_async.IcebergNamespace",
    "lakekeeper": "lance_ns_async.LakekeeperNamespace",
    "polaris": "lance_ns_async.PolarisNamespace",
    "rest": "lance_ns_async.RestNamespace",
    "unity": "lance_ns_async.UnityNamespace",
}
"""Class paths by backend name; `lance_namespace.connect` accepts them in every process, without registration."""


_RESERVED = ("dir", "rest")
"""Names that the spec's own package reserves."""


def register(*, plain: bool = False) -> Mapping[str, str]:
    """Registers names such as `lance-ns-glue` with `lance_namespace.connect` in this process.

    Worker processes of Ray, Daft or Spark do not have the registration: use the class path there.

    Args:
        plain: Whether to register `glue`, `hive3`, `iceberg`, `lakekeeper`, `polaris` and `unity`, too. Other packages
            may register the same names; the last registration wins.

    Returns:
        The registered names, with their class paths.
    """
    names = {f"lance-ns-{impl}": path for impl, path in CLASS_PATHS.items()}
    if plain:
        names |= {impl: path for impl, path in CLASS_PATHS.items() if impl not in _RESERVED}
    for name, path in names.items():
        lance_namespace.register_namespace_impl(name, path)
    return names
