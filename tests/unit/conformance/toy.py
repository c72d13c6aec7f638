"""A catalog in memory that follows the spec, as the base of catalogs with one fault each."""

from __future__ import annotations

from threading import RLock
from typing import Any

import lance_namespace as spec
import lance_namespace.errors as err

Path = tuple[str, ...]


class Store:
    """The content of a catalog, which its clients share."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.namespaces: dict[Path, dict[str, str]] = {(): {}}
        self.tables: dict[Path, tuple[str, dict[str, str]]] = {}
        self.declared = 0


class Toy(spec.LanceNamespace):
    """A client of the catalog."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def namespace_id(self) -> str:
        return "toy"

    def create_namespace(self, request: spec.CreateNamespaceRequest) -> spec.CreateNamespaceResponse:
        id, mode = path(request), word(request.mode or "create")
        with self.store.lock:
            if mode not in ("create", "existok", "overwrite"):
                raise err.InvalidInputError(f"mode {request.mode}")
            self.check_namespace(id[:-1])
            if id in self.store.namespaces:
                if mode == "create" or not id:
                    raise err.NamespaceAlreadyExistsError(str(id))
                if mode == "existok":
                    return spec.CreateNamespaceResponse(properties=self.store.namespaces[id])
                self.check_empty(id)
            self.store.namespaces[id] = dict(request.properties or {})
            return spec.CreateNamespaceResponse(properties=self.store.namespaces[id])

    def describe_namespace(self, request: spec.DescribeNamespaceRequest) -> spec.DescribeNamespaceResponse:
        self.check_namespace(path(request))
        return spec.DescribeNamespaceResponse(properties=self.store.namespaces[path(request)])

    def namespace_exists(self, request: spec.NamespaceExistsRequest) -> spec.NamespaceExistsResponse:
        self.check_namespace(path(request))
        return spec.NamespaceExistsResponse()

    def list_namespaces(self, request: spec.ListNamespacesRequest) -> spec.ListNamespacesResponse:
        self.check_namespace(path(request))
        names, token = page(request, [it for it in self.store.namespaces if it])
        return spec.ListNamespacesResponse(namespaces=names, page_token=token)

    def drop_namespace(self, request: spec.DropNamespaceRequest) -> spec.DropNamespaceResponse:
        id = path(request)
        with self.store.lock:
            if word(request.mode or "") == "skip" and id not in self.store.namespaces:
                return spec.DropNamespaceResponse()
            self.check_namespace(id)
            if not id:
                raise err.InvalidInputError("the root")
            if word(request.behavior or "") == "cascade":
                for content in (self.store.tables, self.store.namespaces):
                    for inner in [it for it in content if it[: len(id)] == id and it != id]:
                        del content[inner]
            self.check_empty(id)
            del self.store.namespaces[id]
            return spec.DropNamespaceResponse()

    def list_tables(self, request: spec.ListTablesRequest) -> spec.ListTablesResponse:
        self.check_namespace(path(request))
        if request.include_declared is False:
            return spec.ListTablesResponse(tables=[])
        names, token = page(request, list(self.store.tables))
        return spec.ListTablesResponse(tables=names, page_token=token)

    def list_all_tables(self, request: spec.ListTablesRequest) -> spec.ListTablesResponse:
        return spec.ListTablesResponse(tables=["$".join(it) for it in self.store.tables])

    def declare_table(self, request: spec.DeclareTableRequest) -> spec.DeclareTableResponse:
        with self.store.lock:
            self.store.declared += 1
            location = request_field(request, "location") or f"/lake/{self.store.declared}"
            self.put(path(request), location, request_field(request, "properties") or {}, replace=False)
        return spec.DeclareTableResponse(location=location)

    def describe_table(self, request: spec.DescribeTableRequest) -> spec.DescribeTableResponse:
        location, properties = self.table(path(request))
        return spec.DescribeTableResponse(location=location, properties=properties)

    def table_exists(self, request: spec.TableExistsRequest) -> spec.TableExistsResponse:
        self.table(path(request))
        return spec.TableExistsResponse()

    def register_table(self, request: spec.RegisterTableRequest) -> spec.RegisterTableResponse:
        if ".." in request.location:
            raise err.InvalidInputError(request.location)
        replace = word(request.mode or "") == "overwrite"
        self.put(path(request), request.location, request.properties or {}, replace=replace)
        return spec.RegisterTableResponse(location=request.location)

    def deregister_table(self, request: spec.DeregisterTableRequest) -> spec.DeregisterTableResponse:
        return spec.DeregisterTableResponse(id=list(path(request)), location=self.take(path(request)))

    def drop_table(self, request: spec.DropTableRequest) -> spec.DropTableResponse:
        return spec.DropTableResponse(id=list(path(request)), location=self.take(path(request)))

    def rename_table(self, request: spec.RenameTableRequest) -> spec.RenameTableResponse:
        old = path(request)
        new = (*old[:-1], request.new_table_name)
        with self.store.lock:
            self.table(old)
            if new in self.store.tables:
                raise err.TableAlreadyExistsError(str(new))
            self.store.tables[new] = self.store.tables.pop(old)
        return spec.RenameTableResponse()

    def check_namespace(self, id: Path) -> None:
        if id not in self.store.namespaces:
            raise err.NamespaceNotFoundError(str(id))

    def check_empty(self, id: Path) -> None:
        if any(it[: len(id)] == id and it != id for it in (*self.store.namespaces, *self.store.tables)):
            raise err.NamespaceNotEmptyError(str(id))

    def table(self, id: Path) -> tuple[str, dict[str, str]]:
        if id not in self.store.tables:
            raise err.TableNotFoundError(str(id))
        return self.store.tables[id]

    def put(self, id: Path, location: str, properties: dict[str, str], *, replace: bool) -> None:
        if not id or "" in id:
            raise err.InvalidInputError(str(id))
        with self.store.lock:
            self.check_namespace(id[:-1])
            if id in self.store.tables and not replace:
                raise err.TableAlreadyExistsError(str(id))
            self.store.tables[id] = (location, properties)

    def take(self, id: Path) -> str:
        with self.store.lock:
            location, _ = self.table(id)
            del self.store.tables[id]
            return location


def path(request: Any) -> Path:
    """Returns the id of a request, which may be a mapping."""
    return tuple(request_field(request, "id") or ())


def request_field(request: Any, name: str) -> Any:
    return request.get(name) if isinstance(request, dict) else getattr(request, name)


def word(text: str) -> str:
    """Returns the spelling of a mode in which all spellings are equal."""
    return text.replace("_", "").lower()


def page(request: Any, ids: list[Path]) -> tuple[list[str], str | None]:
    """Returns the names of a page of the children of the request's id, and the token of the next one."""
    parent = path(request)
    names = sorted(it[-1] for it in ids if it[:-1] == parent)
    start = int(request.page_token or 0)
    end = start + (request.limit or len(names) + 1)
    return names[start:end], str(end) if end < len(names) else None
