"""The properties of a catalog that the contract's tests need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from lance_ns_async import NamespaceId, TableId
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.registry import load


@dataclass(frozen=True)
class Site:
    """A catalog to test."""

    impl: str
    properties: Mapping[str, str]
    plant_other: Callable[[TableId], None] | None = None
    """Puts a table of another format into the catalog; None if the catalog cannot contain one."""
    above: NamespaceId = field(default_factory=NamespaceId)
    """The namespace in which namespaces for tables can be created."""
    nests: bool = True
    """Whether namespaces for tables can contain namespaces, too."""
    served: bool = False
    """Whether it is accessed through a gateway by REST."""
    real: bool = False
    """Whether a real server serves it, which resolves relative locations against its own working directory."""
    joins: str | None = None
    """Joins the names of a listed namespace; None if listings have only the last name, as in the spec."""
    server: Capabilities | None = None
    """The capabilities of its server, if servers of one backend differ; None for those of the backend."""
    exempt: Mapping[str, str] = field(default_factory=dict)
    """The tests that do not apply to its server, by name, with the reason; `name[value]` is one case of a test."""
    overlaps: bool = True
    """Whether a table may be at, above or below the location of another table."""
    frees_locations: bool = True
    """Whether the location of a table that was deregistered or dropped can be registered again."""
    chooses_locations: bool = False
    """Whether the server chooses a unique location for a table that is declared without one."""
    keeps_credentials: bool = False
    """Whether its server vends no credentials, although the backend requests them."""
    throttle: Callable[[], AbstractContextManager[None]] | None = None
    """Makes its server refuse many calls, without a Retry-After time, while the context is open; None if it cannot."""

    @property
    def vends(self) -> bool:
        """Returns whether it vends credentials."""
        return self.can.vends and not self.keeps_credentials

    @property
    def can(self) -> Capabilities:
        """Returns the capabilities of the catalog."""
        return self.server or load(self.impl).capabilities
