"""The stylesheet and the script of the explorer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType

_CONTENT_TYPES = {"style.css": "text/css", "script.js": "text/javascript"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file."""

    content: bytes
    content_type: str
    digest: str
    """Identifies the content."""

    @property
    def etag(self) -> str:
        """The entity tag of the content."""
        return f'"{self.digest}"'


def _load() -> Mapping[str, Asset]:
    folder = files(__package__) / "static"
    contents = {name: (folder / name).read_bytes() for name in _CONTENT_TYPES}
    return MappingProxyType(
        {
            name: Asset(content, _CONTENT_TYPES[name], sha256(content).hexdigest()[:16])
            for name, content in contents.items()
        }
    )


ASSETS: Mapping[str, Asset] = _load()
"""The static files by name."""


def address(name: str) -> str:
    """Returns the address of a static file, which differs for each content."""
    return f"/ui/static/{name}?v={ASSETS[name].digest}"
