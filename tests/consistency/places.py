"""The catalogs of the suites, and a separate place for each round."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from lance_ns_async import Namespace
from tests.consistency.crash import Place
from tests.consistency.history import Rules
from tests.consistency.model import Terms
from tests.consistency.races import Track
from tests.contract.site import Site


def place(site: Site, seed: int) -> Place:
    """Returns a root and namespaces that no other round uses."""
    root = Path(unquote(urlsplit(site.properties["root"]).path)) / f"round{seed}"
    root.mkdir(parents=True)
    home = () if site.impl == "dir" else (*site.above, f"r{seed}")
    if site.nests:
        namespaces = [home] if len(home) > len(site.above) else []
        first, second, side = (*home, "n"), (*home, "m"), (*home, "side")
    else:
        namespaces = []
        first, second, side = ((*site.above, f"r{seed}{it}") for it in ("n", "m", "side"))
    names = [(*first, "a"), (*first, "b"), (*second, "c")]
    bare = {("d",)} if site.impl == "dir" else set()
    terms = Terms(
        names=(*names, *bare),
        side=side,
        renames=site.can.renames,
        shares=site.impl == "dir",
        replaces=site.can.replaces,
        bare=frozenset(bare),
    )
    properties = {**site.properties, "root": str(root) if site.impl == "dir" else root.as_uri()}
    return Place(site.impl, properties, root, terms, (*namespaces, first, second))


def track(site: Site) -> Track:
    namespace = (*site.above, "races")
    with Namespace.connect(site.impl, site.properties) as ns:
        ns.create_namespace({"id": list(namespace)})
    rules = Rules(
        journals=site.impl not in ("polaris", "unity"),
        once=site.impl != "hive3",
        compares=site.impl != "hive3",
        excuses="MetaException" if site.impl == "hive3" else "",
    )
    return Track(site.impl, site.properties, namespace, rules, site.can.replaces)
