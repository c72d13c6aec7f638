"""Random operations on each catalog, with either interface, compared with a model in a dict."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import lance_namespace.errors as err
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from lance_ns_async import AsyncNamespace, Namespace, NamespaceId, TableId
from lance_ns_async.model import Id
from tests.contract.site import Site
from tests.contract.sites import SITES
from tests.support.budget import rounds, with_usual

Kept = tuple[str, Mapping[str, str]]  # The location of a table, and its properties


@dataclass
class Model:
    """Namespaces with their properties, and tables with their locations; the root is created like the others."""

    folds: bool  # Whether names are stored and compared in lower case
    _namespaces: dict[NamespaceId, Mapping[str, str]] = field(default_factory=dict)
    _tables: dict[TableId, Kept] = field(default_factory=dict)
    _moved: set[str] = field(default_factory=set)

    def key(self, id: Id) -> Id:
        return type(id)(name.lower() for name in id) if self.folds else id

    def __contains__(self, id: Id) -> bool:
        return self.key(id) in (self._tables if isinstance(id, TableId) else self._namespaces)

    def make(self, id: NamespaceId, properties: Mapping[str, str]) -> None:
        self._namespaces[NamespaceId(self.key(id))] = properties

    def properties(self, id: NamespaceId) -> Mapping[str, str]:
        return self._namespaces[NamespaceId(self.key(id))]

    def drop(self, id: NamespaceId) -> None:
        kept = self.key(id)
        self._namespaces = {it: held for it, held in self._namespaces.items() if it[: len(kept)] != kept}
        self._tables = {it: held for it, held in self._tables.items() if it[: len(kept)] != kept}

    def is_empty(self, id: NamespaceId) -> bool:
        kept = self.key(id)
        return [it for it in (*self._namespaces, *self._tables) if it[: len(kept)] == kept] == [kept]

    def children(self, id: NamespaceId) -> list[str]:
        return sorted(it.name for it in self._namespaces if it.parent == self.key(id) and it != self.key(id))

    def below_root(self) -> list[NamespaceId]:
        """Returns all namespaces but the first one, oldest first."""
        return list(self._namespaces)[1:]

    def deepest_first(self) -> list[NamespaceId]:
        return sorted(self._namespaces, key=len, reverse=True)

    def add(self, id: TableId, location: str, properties: Mapping[str, str]) -> None:
        self._tables[TableId(self.key(id))] = (location, properties)

    def table(self, id: TableId) -> Kept:
        return self._tables[TableId(self.key(id))]

    def remove(self, id: TableId) -> None:
        del self._tables[TableId(self.key(id))]

    def rename(self, id: TableId, to: TableId) -> None:
        kept = self._tables.pop(TableId(self.key(id)))
        self._tables[TableId(self.key(to))] = kept
        self._moved.add(kept[0])

    def tables_in(self, id: NamespaceId) -> list[str]:
        return sorted(it.name for it in self._tables if it.parent == self.key(id))

    def below(self, id: NamespaceId) -> list[TableId]:
        kept = self.key(id)
        return [it for it in self._tables if it[: len(kept)] == kept]

    def all_tables(self) -> list[TableId]:
        return list(self._tables)

    def shared_places(self) -> list[str]:
        """Returns the locations of several tables that were not registered there. A table that was renamed before it
        had data leaves its location to the next one with its old name."""
        placed = (location for location, _ in self._tables.values() if "/registered-" not in location)
        places = [place for place in placed if place not in self._moved]
        return sorted({place for place in places if places.count(place) > 1})


Face = Literal["async", "sync"]


class Asked:
    """One interface of a namespace; each operation returns its response or its error."""

    def __init__(self, site: Site, face: Face) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._face: Any
        if face == "sync":
            self._face = Namespace.connect(site.impl, site.properties)
        else:
            connected = AsyncNamespace.connect(site.impl, site.properties)
            self._face = self._runner.run(self._stack.enter_async_context(connected))

    def __call__(self, operation: str, *arguments: Any) -> Any:
        try:
            method = getattr(self._face, operation)
            return method(*arguments) if isinstance(self._face, Namespace) else self._runner.run(method(*arguments))
        except err.LanceNamespaceError as e:
            return e

    def close(self) -> None:
        if isinstance(self._face, Namespace):
            self._face.close()
        self._runner.run(self._stack.aclose())
        self._runner.close()


Where: TypeAlias = int | list[str]  # A namespace: an existing one, or names in the home
What: TypeAlias = int | tuple[Where, str]  # A table: an existing one, or a name in a namespace
MODELLED = ["dir", "iceberg-fake", "hive-fake-4.0.1", "glue", "polaris-fake", "unity-fake"]
NAMES = st.sampled_from(["a", "b", "Cc", "cc", "d_1"])
TABLES = st.sampled_from(["t", "u", "U", "v_1", "w"])
PROPERTIES = st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["v", "w", "1"]), max_size=2)
WHICH = st.integers(0, 9)  # Represents one of the existing objects, because random names rarely exist
WHERE: st.SearchStrategy[Where] = st.one_of(WHICH, WHICH, st.lists(NAMES, min_size=1, max_size=2))
WHAT: st.SearchStrategy[What] = st.one_of(WHICH, WHICH, st.tuples(WHERE, TABLES))
LIMITS = st.one_of(st.none(), st.integers(1, 4))
_homes = itertools.count()


class Operations(RuleBasedStateMachine):
    """Performs operations on a catalog and on the model, and compares the outcomes."""

    def __init__(self, site: Site, ns: Asked) -> None:
        super().__init__()
        self.site = site
        self.ns = ns

    @initialize()
    def begin(self) -> None:
        self.home = self.site.above.child(f"m{next(_homes):05}")
        self.model = Model(folds=self.site.can.folds_case)
        parent = self.home if self.site.nests else self.site.above
        self.model.make(parent, {})
        if self.site.nests:
            self.expect(self.ns("create_namespace", {"id": list(self.home)}), None)
        # Otherwise most operations would find no object.
        self.create_namespace(["a"], None, {}, None)

    def namespace(self, where: Where) -> NamespaceId:
        """Returns a namespace in the home, or beside it if namespaces cannot contain others."""
        if isinstance(where, int):
            there = self.model.below_root()
            return there[where % len(there)] if there else self.namespace(["a"])
        if self.site.nests:
            return NamespaceId([*self.home, *where])
        return NamespaceId([*self.site.above, f"{self.home.name}_{where[0]}"])

    def table(self, what: What) -> TableId:
        if isinstance(what, int):
            there = self.model.all_tables()
            return there[what % len(there)] if there else self.namespace(["a"]).table("t")
        where, name = what
        return self.namespace(where).table(name)

    def expect(self, result: Any, *errors: type[err.LanceNamespaceError] | None) -> bool:
        """Returns whether an operation succeeded, which it must if no error is expected, and otherwise must not."""
        error = result if isinstance(result, err.LanceNamespaceError) else None
        expected = [it for it in errors if it is not None]
        if not expected:
            assert error is None, repr(error)
        else:
            assert type(error) in expected, f"{result!r} where {[it.__name__ for it in expected]} is due"
        return error is None

    @rule(
        where=WHERE,
        child=st.one_of(st.none(), NAMES),
        properties=PROPERTIES,
        mode=st.sampled_from([None, "exist_ok", "overwrite"]),
    )
    def create_namespace(
        self, where: Where, child: str | None, properties: Mapping[str, str], mode: str | None
    ) -> None:
        id = self.namespace(where)
        if child is not None:
            id = id.child(child) if self.site.nests else self.namespace([child])
        result = self.ns("create_namespace", {"id": list(id), "properties": dict(properties), "mode": mode})
        if id.parent not in self.model:
            self.expect(result, err.NamespaceNotFoundError)
        elif id not in self.model:
            self.expect(result)
            self.model.make(id, properties)
        elif mode is None:
            self.expect(result, err.NamespaceAlreadyExistsError)
        elif mode == "overwrite" and not self.model.is_empty(id):
            self.expect(result, err.NamespaceNotEmptyError)
        else:
            self.expect(result)
            if mode == "overwrite":
                self.model.make(id, properties)
            assert self.model.properties(id).items() <= result.properties.items()

    @rule(where=WHERE)
    def describe_namespace(self, where: Where) -> None:
        id = self.namespace(where)
        result = self.ns("describe_namespace", {"id": list(id)})
        exists = self.ns("exists", id)
        assert exists is (id in self.model), repr(exists)
        if self.expect(result, None if id in self.model else err.NamespaceNotFoundError):
            assert self.model.properties(id).items() <= result.properties.items()

    @rule(where=WHERE, mode=st.sampled_from([None, "skip"]), behavior=st.sampled_from([None, "restrict", "cascade"]))
    def drop_namespace(self, where: Where, mode: str | None, behavior: str | None) -> None:
        id = self.namespace(where)
        result = self.ns("drop_namespace", {"id": list(id), "mode": mode, "behavior": behavior})
        if id not in self.model:
            self.expect(result, None if mode == "skip" else err.NamespaceNotFoundError)
        elif behavior == "cascade" and not self.site.can.cascades and not self.model.is_empty(id):
            self.expect(result, err.InvalidInputError)
        elif behavior != "cascade" and not self.model.is_empty(id):
            self.expect(result, err.NamespaceNotEmptyError)
        else:
            self.expect(result)
            self.model.drop(id)

    @rule(where=st.one_of(st.none(), WHERE), limit=LIMITS)
    def list_namespaces(self, where: Where | None, limit: int | None) -> None:
        # Beside the home, there are namespaces of other tests, too.
        parent = self.above(where) if self.site.nests else self.site.above
        result = self.pages("list_namespaces", parent, limit, lambda page: page.namespaces)
        if self.expect(result, None if parent in self.model else err.NamespaceNotFoundError):
            above = f"{self.site.joins.join(parent)}{self.site.joins}" if self.site.joins else ""
            listed = [name.removeprefix(above) for name in result]
            ours = listed if self.site.nests else [name for name in listed if name.startswith(f"{self.home.name}_")]
            assert sorted(ours) == self.model.children(parent)

    @rule(what=WHAT, properties=PROPERTIES)
    def declare_table(self, what: What, properties: Mapping[str, str]) -> None:
        id = self.table(what)
        self.declared(id, self.ns("declare_table", {"id": list(id), "properties": dict(properties)}), properties)

    @rule(what=WHAT, overwrite=st.booleans(), of=st.integers(0, 3))
    def register_table(self, what: What, overwrite: bool, of: int) -> None:
        id = self.table(what)
        location = f"{self.root().rstrip('/')}/{self.home.name}/registered-{of}"
        request = {"id": list(id), "location": location, "mode": "overwrite" if overwrite else "create"}
        result = self.ns("register_table", request)
        if overwrite and id in self.model:
            if not self.site.can.replaces:
                if isinstance(result, err.LanceNamespaceError):
                    self.expect(result, err.UnsupportedOperationError)
                # Otherwise the table was already registered there.
                return
            self.model.remove(id)
        self.declared(id, result, {})

    def root(self) -> str:
        root = self.site.properties.get("root")
        if root is None:
            home = self.ns("describe_namespace", {"id": list(self.home)})
            assert home.properties is not None
            return str(home.properties["location"])
        return root if "://" in root else f"file://{root}"

    def declared(self, id: TableId, result: Any, properties: Mapping[str, str]) -> None:
        if id.parent not in self.model:
            self.expect(result, err.NamespaceNotFoundError)
        elif id in self.model:
            self.expect(result, err.TableAlreadyExistsError)
        else:
            self.expect(result)
            assert properties.items() <= (result.properties or {}).items()
            self.model.add(id, result.location, properties)

    @rule(what=WHAT)
    def describe_table(self, what: What) -> None:
        id = self.table(what)
        result = self.ns("describe_table", {"id": list(id)})
        exists = self.ns("exists", list(id)) if id in self.model or id.parent in self.model else None
        assert exists in (None, id in self.model), repr(exists)
        if self.expect(result, *self.missing(id)):
            location, properties = self.model.table(id)
            assert result.location == location and properties.items() <= (result.properties or {}).items()

    def missing(self, id: TableId) -> Sequence[type[err.LanceNamespaceError]]:
        """Returns the possible errors for a missing table; some catalogs report a missing namespace in the same way."""
        if id in self.model:
            return ()
        return (
            (err.TableNotFoundError,)
            if id.parent in self.model
            else (err.TableNotFoundError, err.NamespaceNotFoundError)
        )

    @rule(what=WHAT)
    def deregister_table(self, what: What) -> None:
        id = self.table(what)
        result = self.ns("deregister_table", {"id": list(id)})
        if self.expect(result, *self.missing(id)):
            assert result.location == self.model.table(id)[0]
            self.model.remove(id)

    @rule(what=WHAT, to=st.one_of(st.none(), WHERE), new=TABLES)
    def rename_table(self, what: What, to: Where | None, new: str) -> None:
        id = self.table(what)
        target = (id.parent if to is None else self.namespace(to)).table(new)
        request: dict[str, Any] = {"id": list(id), "new_table_name": new}
        if to is not None:
            request["new_namespace_id"] = list(target.parent)
        result = self.ns("rename_table", request)
        if id not in self.model:
            self.expect(result, *self.missing(id))
        elif not self.site.can.renames:
            self.expect(result, err.UnsupportedOperationError)
        elif target.parent not in self.model:
            self.expect(result, err.NamespaceNotFoundError)
        elif self.model.key(target) == self.model.key(id):
            # A rename to its own name is refused by some catalogs, and has no effect in others.
            assert isinstance(result, err.TableAlreadyExistsError) or not isinstance(result, err.LanceNamespaceError), (
                result
            )
        elif target in self.model:
            self.expect(result, err.TableAlreadyExistsError)
        else:
            self.expect(result)
            self.model.rename(id, target)

    @rule(where=WHERE, limit=LIMITS)
    def list_tables(self, where: Where, limit: int | None) -> None:
        parent = self.namespace(where)
        result = self.pages("list_tables", parent, limit, lambda page: page.tables)
        if self.expect(result, None if parent in self.model else err.NamespaceNotFoundError):
            assert sorted(result) == self.model.tables_in(parent) and len(result) == len(set(result))

    @precondition(lambda self: self.site.nests)
    @rule(where=st.one_of(st.none(), WHERE), limit=LIMITS)
    def list_all_tables(self, where: Where | None, limit: int | None) -> None:
        parent = self.above(where)
        result = self.pages("list_all_tables", parent, limit, lambda page: page.tables)
        if self.expect(result, None if parent in self.model else err.NamespaceNotFoundError):
            assert sorted(result) == sorted(map(str, self.model.below(parent)))

    def above(self, where: Where | None) -> NamespaceId:
        return self.home if where is None else self.namespace(where)

    def pages(self, operation: str, id: NamespaceId, limit: int | None, items: Callable[[Any], Sequence[str]]) -> Any:
        result: list[str] = []
        token = None
        while True:
            page = self.ns(operation, {"id": list(id), "limit": limit, "page_token": token})
            if isinstance(page, err.LanceNamespaceError):
                return page
            assert limit is None or len(items(page)) <= limit
            result += items(page)
            if not (token := page.page_token):
                return result

    @rule(tables=st.lists(WHAT, max_size=12))
    def describe_tables(self, tables: Sequence[What]) -> None:
        ids = list(map(self.table, tables))
        result = self.ns("describe_tables", ids)
        assert not isinstance(result, err.LanceNamespaceError), repr(result)
        assert set(result.tables) == {id for id in ids if id in self.model}
        assert {id: table.location for id, table in result.tables.items()} == {
            id: self.model.table(id)[0] for id in result.tables
        }
        assert set(result.errors) == {id for id in ids if id not in self.model}
        for id, error in result.errors.items():
            assert type(error) in self.missing(id), repr(error)

    # A catalog's own tokens may be offsets, which refer to other items after a change.
    @precondition(lambda self: not self.site.can.paginates)
    @rule(where=WHERE, limit=st.integers(1, 3), name=TABLES, remove=st.booleans())
    def go_on_after_a_change(self, where: Where, limit: int, name: str, remove: bool) -> None:
        """A listing during which a table is created or dropped contains each other table once."""
        parent = self.namespace(where)
        if parent not in self.model:
            return
        before = self.model.tables_in(parent)
        first = self.ns("list_tables", {"id": list(parent), "limit": limit})
        self.expect(first)
        if not first.page_token:
            assert sorted(first.tables) == before
            return
        inside = self.model.tables_in(parent)
        id = parent.table(inside[len(name) % len(inside)] if remove else name)
        if remove:
            self.expect(self.ns("deregister_table", {"id": list(id)}))
            self.model.remove(id)
        else:
            self.declared(id, self.ns("declare_table", {"id": list(id)}), {})
        rest, token = list(first.tables), first.page_token
        while token:
            page = self.ns("list_tables", {"id": list(parent), "limit": limit, "page_token": token})
            self.expect(page)
            rest += page.tables
            token = page.page_token
        changed = self.model.key(id)[-1]
        assert sorted(it for it in rest if it != changed) == [it for it in before if it != changed]

    @invariant()
    def nothing_shares_a_place_unasked(self) -> None:
        if hasattr(self, "model"):
            assert self.model.shared_places() == []

    def teardown(self) -> None:
        """Removes all namespaces; otherwise later homes beside them would list them."""
        if hasattr(self, "model"):
            for id in self.model.all_tables():
                self.expect(self.ns("deregister_table", {"id": list(id)}))
            for namespace in self.model.deepest_first():
                if namespace != self.site.above:
                    self.expect(self.ns("drop_namespace", {"id": list(namespace)}))


@pytest.fixture(scope="module", params=MODELLED)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place: Path = tmp_path_factory.mktemp(request.param)
    with SITES[request.param](place) as site:
        yield site


@pytest.mark.parametrize("face", with_usual(["async", "sync"], "async"))
def test_a_catalog_does_what_a_dict_does(site: Site, face: Face) -> None:
    namespace = Asked(site, face)
    few = settings(max_examples=rounds(4, 10), stateful_step_count=15)
    try:
        run_machine(lambda: Operations(site, namespace), settings=few)  # type: ignore[arg-type]  # it calls what it is given
    finally:
        namespace.close()
