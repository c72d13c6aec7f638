"""From a catalog's name to its backend, imported only when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.base import Backend


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a backend is, and which extra of the distribution it needs."""

    module: str
    name: str
    extra: str | None = None


_AROUND = re.compile(r"^lance_ns_async\.(sync\.)?|^lance[-_]ns[-_]|(Namespace|Backend)$")

BACKENDS: Mapping[str, Entry] = {
    "dir": Entry("lance_ns_async.backends.directory.backend", "DirectoryBackend"),
    "iceberg": Entry("lance_ns_async.backends.iceberg.backend", "IcebergBackend"),
    "hive3": Entry("lance_ns_async.backends.hive3.backend", "HiveBackend"),
    "glue": Entry("lance_ns_async.backends.glue.backend", "GlueBackend", extra="glue"),
    "polaris": Entry("lance_ns_async.backends.polaris.backend", "PolarisBackend"),
    "unity": Entry("lance_ns_async.backends.unity.backend", "UnityBackend"),
}


def load(impl: str) -> type[Backend]:
    """The backend class of that name; raises InvalidInputError for an unknown one or a missing extra."""
    if (entry := BACKENDS.get(impl)) is None:
        meant = _meant(impl)
        hint = f"did you mean {meant!r}?" if meant else f"known are {', '.join(BACKENDS)}"
        raise InvalidInputError(f"backend {impl!r}: unknown; {hint}")
    try:
        module = import_module(entry.module)
    except ModuleNotFoundError as e:
        if entry.extra is None:
            raise
        raise InvalidInputError(
            f"backend {impl!r} needs: pip install 'lance-ns-async[{entry.extra}]' (no module named {e.name})"
        ) from e
    found: type[Backend] = getattr(module, entry.name)
    return found


def _meant(impl: str) -> str | None:
    """The backend that a class path, a name for `lance_namespace.connect`, a longer word or a slip stands for."""
    word = _AROUND.sub("", impl).lower()
    near = get_close_matches(word, BACKENDS, n=1)
    return near[0] if near else next((name for name in BACKENDS if word.startswith(name)), None)
