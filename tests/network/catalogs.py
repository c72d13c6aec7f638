"""The catalogs behind the proxy, and their faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from lance_ns_async import NamespaceId
from tests.contract.rest_sites import ON_A_GATEWAY, rest_on_a_gateway
from tests.contract.site import Site
from tests.contract.sites import fake_glue, fake_hive, fake_iceberg, fake_lakekeeper, fake_polaris, fake_unity
from tests.network.faults import ANY_WIRE
from tests.network.http_faults import HTTP_FAULTS
from tests.network.proxy import Fault, HttpWire, ThriftWire, Wire
from tests.network.thrift_faults import THRIFT_FAULTS


@dataclass(frozen=True)
class ProxiedCatalog:
    """A catalog behind the proxy."""

    site: Site
    wire: Wire
    port: int
    more: Mapping[str, str]

    def properties(self, port: int) -> Mapping[str, str]:
        """Returns the properties for access through another port of this machine."""
        properties = dict(self.site.properties)
        for key in ("endpoint", "uri"):
            if key in properties:
                properties[key] = properties[key].replace(f":{self.port}", f":{port}")
        return {**properties, **self.more}

    @property
    def namespace(self) -> NamespaceId:
        """The namespace of the tables."""
        return NamespaceId([*self.site.above, "network"])


def _port(site: Site) -> int:
    result = urlsplit(site.properties.get("endpoint") or site.properties["uri"]).port
    assert result is not None
    return result


@contextmanager
def _behind(open: Callable[[Path], AbstractContextManager[Site]], wire: Wire, tmp: Path) -> Iterator[ProxiedCatalog]:
    with open(tmp) as site:
        direct = {"proxy": "none"} if isinstance(wire, HttpWire) else {}
        yield ProxiedCatalog(site, wire, _port(site), direct)


Open = Callable[[Path], AbstractContextManager[ProxiedCatalog]]

CATALOGS: Mapping[str, Open] = {
    "iceberg": partial(_behind, fake_iceberg, HttpWire()),
    "polaris": partial(_behind, fake_polaris, HttpWire()),
    "lakekeeper": partial(_behind, fake_lakekeeper, HttpWire()),
    "unity": partial(_behind, partial(fake_unity, dialect="0.6"), HttpWire()),
    "glue": partial(_behind, fake_glue, HttpWire()),
    "hive3": partial(_behind, partial(fake_hive, version="3.1.3"), ThriftWire()),
    "rest": partial(_behind, partial(rest_on_a_gateway, fake_iceberg, ON_A_GATEWAY), HttpWire()),
}


_SOME = (
    *("reset before the response", "within the response", "the request lost", "late", "the response again, later"),
    *("the previous response", "the request itself", "chunks that do not end", "a bomb in a bomb"),
    *("HTTP 400", "HTTP 401", "HTTP 406", "HTTP 429", "HTTP 503", "a page", "a body of", "another form"),
)
"""Parts of the names of the faults for `rest`.

Its transport is that of the other catalogs, so only its own decoding and error table are tested. Each call of the
gateway is a call of the catalog behind it, too, so that all faults would take four times as long as with that catalog.
"""


def faults_for(impl: str) -> Sequence[Fault]:
    """Returns the faults for a catalog."""
    own = THRIFT_FAULTS if impl == "hive3" else HTTP_FAULTS
    faults = [fault for fault in (*ANY_WIRE, *own) if impl not in fault.not_on]
    if impl == "rest":
        return [fault for fault in faults if any(part in fault.name for part in _SOME)]
    return faults
