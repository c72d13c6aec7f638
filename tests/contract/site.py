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
    """A catalog to test on."""

    impl: str
    properties: Mapping[str, str]
    plant_other: Callable[[TableId], None] | None = None
    """Puts a table of another format into the catalog; None where it can hold none."""
    above: NamespaceId = field(default_factory=NamespaceId)
    """Where namespaces that hold tables can be made."""
    nests: bool = True
    """Whether those hold namespaces, too."""
    served: bool = False
    """Whether it is reached through a gateway that serves it by REST, instead of directly."""
    real: bool = False
    """Whether a real server serves it, which writes into its own working directory what is told it relative."""
    joins: str | None = None
    """What joins the names of a listed namespace; None where the spec's listing gives the last name alone."""
    server: Capabilities | None = None
    """What its server can do, where servers of one backend differ; None where all do what the backend says."""
    exempt: Mapping[str, str] = field(default_factory=dict)
    """The tests that do not apply to its server, by name, with the reason; `name[value]` is one case of a test."""
    overlaps: bool = True
    """Whether a table may be at, above or below the location of another one."""
    frees_locations: bool = True
    """Whether the location of a table that was deregistered or dropped can be registered again."""
    chooses_locations: bool = False
    """Whether the server chooses a unique location for a table that is declared without one."""
    keeps_credentials: bool = False
    """Whether its server gives out no credentials, though the backend asks for them."""
    throttle: Callable[[], AbstractContextManager[None]] | None = None
    """Makes its server refuse many calls, without a time to wait for, while the context lasts; None if it cannot."""

    @property
    def vends(self) -> bool:
        """Whether it gives out credentials."""
        return self.can.vends and not self.keeps_credentials

    @property
    def can(self) -> Capabilities:
        """What the catalog can do."""
        return self.server or load(self.impl).catalog_capabilities
