"""Operations built on the backend interface, the same for every catalog."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from lance_namespace.errors import ConcurrentModificationError, NamespaceAlreadyExistsError, NamespaceNotFoundError

from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import error_about
from lance_ns_async.model import NamespaceId

_TIMES = 6
"""Maximum number of attempts to keep or create a namespace that other clients create or drop at the same time."""


async def describe_namespace(backend: Backend, id: NamespaceId) -> Mapping[str, str]:
    """Returns the namespace's properties; the root always exists and has none."""
    return await backend.describe_namespace(id) if id else {}


async def create_namespace(backend: Backend, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
    """Creates a namespace and returns its properties."""
    if not id:
        raise NamespaceAlreadyExistsError("Namespace already exists: the catalog (create_namespace: it is the root)")
    return await backend.create_namespace(id, properties)


async def keep_or_create_namespace(
    backend: Backend, id: NamespaceId, properties: Mapping[str, str]
) -> Mapping[str, str]:
    """Returns the properties of the namespace, which is created if it does not exist.

    If another client drops the namespace meanwhile, it is created again.
    """
    for _ in range(_TIMES):
        try:
            return await create_namespace(backend, id, properties)
        except (NamespaceAlreadyExistsError, ConcurrentModificationError) as e:
            error = e
        with suppress(NamespaceNotFoundError):
            return await describe_namespace(backend, id)
    raise error_about(
        ConcurrentModificationError,
        id,
        "create_namespace: the catalog says that it exists, "
        "but does not describe it; other clients may create and drop it at the same time: try again later",
    ) from error
