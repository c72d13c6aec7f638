"""Short names of the catalogs, for `lance_namespace.connect` and whatever calls it."""

from __future__ import annotations

from collections.abc import Mapping

import lance_namespace

CLASS_PATHS: Mapping[str, str] = {
    "dir": "lance_ns_async.DirNamespace",
    "glue": "lance_ns_async.GlueNamespace",
    "hive3": "lance_ns_async.Hive3Namespace",
    "iceberg": "lance_ns_async.IcebergNamespace",
    "polaris": "lance_ns_async.PolarisNamespace",
    "unity": "lance_ns_async.UnityNamespace",
}
"""By the backend's name: what `lance_namespace.connect` takes in every process, without a registration."""


def register(*, plain: bool = False) -> Mapping[str, str]:
    """Makes `lance_namespace.connect` know `lance-ns-glue` and its like in this process; gives name and class path.

    With `plain` also `glue`, `hive3`, `iceberg`, `polaris` and `unity`, which other packages may claim as well: the
    last to do so has them. Workers of Ray, Daft or Spark know no such name: give those the class path.
    """
    names = {f"lance-ns-{impl}": path for impl, path in CLASS_PATHS.items()}
    if plain:
        # The spec's own package keeps `dir` for itself.
        names |= {impl: path for impl, path in CLASS_PATHS.items() if impl != "dir"}
    for name, path in names.items():
        lance_namespace.register_namespace_impl(name, path)
    return names
