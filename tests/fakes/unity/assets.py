"""Further objects in a schema of a Unity Catalog server: volumes, functions and registered models."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from .catalog import Json, compact, made

KINDS = {"volumes": "Volume", "functions": "Function", "models": "Registered_model"}
"""The last segment of a listing's path, and the kind of the listed objects."""


@dataclass(slots=True)
class AssetRow:
    """A volume, a function or a model in the form of responses."""

    info: Json

    def text(self) -> bytes:
        return compact(self.info)


def volume(catalog: str, schema: str, name: str, kind: str, location: str) -> AssetRow:
    """Returns a new volume, MANAGED or EXTERNAL."""
    own: Json = {"volume_id": str(uuid4()), "volume_type": kind, "storage_location": location}
    return AssetRow({**_named(catalog, schema, name), **own})


def function(catalog: str, schema: str, name: str) -> AssetRow:
    """Returns a new function."""
    own: Json = {"function_id": str(uuid4()), "data_type": "INT", "routine_body": "EXTERNAL"}
    return AssetRow({**_named(catalog, schema, name), **own})


def model(catalog: str, schema: str, name: str, location: str) -> AssetRow:
    """Returns a new registered model, whose versions have their files under its location."""
    return AssetRow({**_named(catalog, schema, name), "id": str(uuid4()), "storage_location": location})


def delete_directory(location: str) -> None:
    """Deletes a local directory, as the server does with managed data; a missing one is not an error."""
    if location.startswith("file:"):
        shutil.rmtree(unquote(urlsplit(location).path), ignore_errors=True)


def _named(catalog: str, schema: str, name: str) -> Json:
    full_name = f"{catalog}.{schema}.{name}"
    return {"name": name, "catalog_name": catalog, "schema_name": schema, "full_name": full_name, **made()}
