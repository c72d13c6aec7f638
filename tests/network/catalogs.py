"""The catalogs that the proxy stands before, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from lance_ns_async import NamespaceId
from tests.contract.site import Site
from tests.contract.sites import fake_glue, fake_hive, fake_iceberg, fake_polaris, fake_unity
from tests.faults.certificates import authority
from tests.network.http_kinds import HTTP_KINDS
from tests.network.kinds import ANY_WIRE
from tests.network.proxy import HttpWire, Kind, ThriftWire, Wire
from tests.network.thrift_kinds import THRIFT_KINDS


@dataclass(frozen=True)
class Behind:
    """A catalog behind the proxy."""

    site: Site
    wire: Wire
    port: int
    more: Mapping[str, str]

    def properties(self, port: int) -> Mapping[str, str]:
        """What connects to it by another port of this machine."""
        given = dict(self.site.properties)
        for key in ("endpoint", "uri"):
            if key in given:
                given[key] = given[key].replace(f":{self.port}", f":{port}")
        return {**given, **self.more}

    @property
    def namespace(self) -> NamespaceId:
        """Where the tables are that are asked for."""
        return NamespaceId([*self.site.above, "network"])


def _port(site: Site) -> int:
    found = urlsplit(site.properties.get("endpoint") or site.properties["uri"]).port
    assert found is not None
    return found


@contextmanager
def _behind(open: Callable[[Path], AbstractContextManager[Site]], wire: Wire, tmp: Path) -> Iterator[Behind]:
    with open(tmp) as site:
        direct = {"proxy": "none"} if isinstance(wire, HttpWire) else {}
        if site.impl == "glue":
            # Reading the usual authorities would take longer than a call may.
            direct = {"ca_bundle": authority().bundle}
        yield Behind(site, wire, _port(site), direct)


Open = Callable[[Path], AbstractContextManager[Behind]]

CATALOGS: Mapping[str, Open] = {
    "iceberg": partial(_behind, fake_iceberg, HttpWire()),
    "polaris": partial(_behind, fake_polaris, HttpWire()),
    "unity": partial(_behind, partial(fake_unity, dialect="0.6"), HttpWire()),
    "glue": partial(_behind, fake_glue, HttpWire()),
    "hive3": partial(_behind, partial(fake_hive, version="3.1.3"), ThriftWire()),
}


def kinds_for(impl: str) -> Sequence[Kind]:
    """What can befall a catalog."""
    own = THRIFT_KINDS if impl == "hive3" else HTTP_KINDS
    return [kind for kind in (*ANY_WIRE, *own) if impl not in kind.not_on]
