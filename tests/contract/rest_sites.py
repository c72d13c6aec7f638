"""Sites of the `rest` backend: a server by other authors, and our own gateway in front of other backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from lance.namespace import RestAdapter

from lance_ns_async import NamespaceId
from lance_ns_async.registry import load
from tests.contract.site import Site
from tests.fakes.rest import FakeGravitino
from tests.support.gateway import served

_ABSOLUTE = "its server registers tables at relative locations alone, and replaces none"
_OWN_FOLDER = "its server holds tables in its own folder alone"
_CHOOSES = "its server chooses the locations"
_BY_NAME = "its server declares a name at the same location each time"

ON_PYLANCE: Mapping[str, str] = {
    "test_a_location_that_is_given_stays_as_it_is": _CHOOSES,
    "test_a_table_that_is_replaced_is_never_missing": _ABSOLUTE,
    "test_a_dropped_table_comes_back_as_it_was": _ABSOLUTE,
    "test_a_table_comes_back_under_another_name": _ABSOLUTE,
    "test_a_table_is_brought_back_under_one_name": _ABSOLUTE,
    "test_a_table_is_dropped_once_with_a_retention": "its server tells several callers that they removed the table",
    "test_an_odd_name_is_held_as_it_is_or_refused[a%2Fb]": "its server writes the name into a location that no drop "
    "accepts",
    "test_an_overwrite_that_fails_leaves_the_properties": _ABSOLUTE,
    "test_cascade_is_refused_where_the_catalog_has_none": "its server takes a cascade for a drop of an empty namespace",
    "test_dropping_never_takes_another_table_along": "its server declares no table at a location",
    "test_each_declaration_has_its_own_location": _CHOOSES,
    "test_first_rows_that_others_use_stay_as_the_error_says": _ABSOLUTE,
    "test_a_name_is_stored_as_it_is_or_refused[a percent-encoded slash]": "its server writes the name into a location "
    "that no drop accepts",
    "test_a_name_is_stored_as_it_is_or_refused[a backslash]": "its server writes the name into a location that no drop "
    "accepts",
    "test_a_table_is_deregistered_once": "its server tells all callers that they did it",
    "test_a_table_is_dropped_once": "its server gives callers that lose an error without a code",
    "test_registering_overwrites_only_on_request": _ABSOLUTE,
    "test_registering_puts_a_table_back": _ABSOLUTE,
    "test_the_folder_of_a_namespace_is_not_dropped_with_a_table": _OWN_FOLDER,
}
ON_GRAVITINO = {
    "test_a_table_comes_back_under_another_name": _BY_NAME,
    "test_a_table_made_again_during_a_first_write_stays": _BY_NAME,
    "test_cascade_refuses_what_is_no_lance_table_and_drops_nothing": "its server drops tables of all formats",
    "test_first_rows_of_a_table_deregistered_meanwhile_stay": _BY_NAME,
    "test_no_declaration_has_the_location_of_an_earlier_one": _BY_NAME,
}
CHOSEN = ("test_a_location_that_is_given_stays_as_it_is", "test_each_declaration_has_its_own_location")
ON_A_GATEWAY = dict.fromkeys(CHOSEN, _CHOOSES)
ON_A_GATEWAY_TO_DIR = {**ON_A_GATEWAY, "test_the_folder_of_a_namespace_is_not_dropped_with_a_table": _OWN_FOLDER}


@contextmanager
def rest_on_pylance(tmp: Path) -> Iterator[Site]:
    """Provides pylance's own server of the protocol, in front of its own directory catalog."""
    with RestAdapter("dir", {"root": str(tmp)}, port=0) as server:
        can = replace(load("rest").capabilities, cascades=False, renames=False)
        yield Site(
            "rest", {"uri": f"http://127.0.0.1:{server.port}"}, server=can, exempt=ON_PYLANCE, keeps_credentials=True
        )


@contextmanager
def rest_on_gravitino(tmp: Path) -> Iterator[Site]:
    """Provides a fake of Apache Gravitino 1.3.0."""
    with FakeGravitino(base=tmp.as_uri()) as server:
        server.namespaces[("lake",)] = {"in-use": "true"}
        yield Site(
            "rest",
            {"uri": server.url, "min_depth": "2", "max_depth": "2"},
            above=NamespaceId(["lake"]),
            nests=False,
            server=replace(load("rest").capabilities, min_depth=2, max_depth=2, renames=False),
            exempt=ON_GRAVITINO,
            keeps_credentials=True,
        )


@contextmanager
def rest_on_a_gateway(
    behind: Callable[[Path], AbstractContextManager[Site]], exempt: Mapping[str, str], tmp: Path
) -> Iterator[Site]:
    """Provides the `rest` backend on our own gateway, in front of another backend."""
    with behind(tmp) as site, served(site.impl, site.properties) as gateway:
        can = replace(
            load("rest").capabilities,
            cascades=site.can.cascades,
            folds_case=site.can.folds_case,
            keeps_case=site.can.keeps_case,
            location_properties=site.can.location_properties,
            relative_locations=site.can.relative_locations,
            renames=site.can.renames,
        )
        token = {f"header.{name}": value for name, value in gateway.headers.items()}
        yield replace(
            site,
            impl="rest",
            properties={"uri": gateway.url, **token},
            server=can,
            exempt=exempt,
            keeps_credentials=not site.vends,
        )
