"""Access of Spark's tasks to tables whose credentials expire during a job: they ask an endpoint of the driver.

Spark's Python processes import this module, so its own imports are kept to a minimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeAlias

    from pyspark.sql import SparkSession

    from lance_ns_async.spark.resolve.location import Location
    from lance_ns_async.storage.opening import Opener

    Renew: TypeAlias = "Callable[[Collection[Location], SparkSession], Renewal]"
    """Returns what renews the credentials of tables in tasks of a session."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The endpoint that renews credentials, the token that it requires, and the authority of its certificate."""

    uri: str
    token: str = field(repr=False)
    authority: str = field(default="", repr=False)
    """In PEM; empty without TLS."""

    def opener(self) -> Opener:
        """Returns what opens tables, whose credentials are then renewed for as long as they are used.

        It is one for all tables and tasks of this process: a client of the endpoint takes 3 ms, as long as an open.
        """
        return _opener(self)

    def connect(self) -> Any:
        """Returns a new client of the endpoint."""
        from lance.namespace import RestNamespace

        connect: Any = RestNamespace  # without types
        properties = {"uri": self.uri, "header.x-lance-token": self.token}
        if not self.authority:
            return _Endpoint(self.uri, connect(**properties))
        with TemporaryDirectory(prefix="lance-ns-") as folder:
            file = Path(folder, "authority.pem")
            file.write_text(self.authority)
            return _Endpoint(self.uri, connect(**properties, **{"tls.ssl_ca_cert": str(file)}))


@lru_cache(maxsize=8)
def _opener(renewal: Renewal) -> Opener:
    from lance_ns_async.storage.opening import Opener

    return Opener(renewal.connect)


class _Endpoint:
    """The namespace of an endpoint; if that does not answer, the error says where it should be."""

    def __init__(self, uri: str, namespace: Any) -> None:
        self._uri = uri
        self._namespace = namespace

    def describe_table(self, request: Any) -> Any:
        from lance_namespace.errors import ServiceUnavailableError

        try:
            return self._namespace.describe_table(request)
        except ServiceUnavailableError as e:
            raise ServiceUnavailableError(
                f"{e} (credentials are renewed at {self._uri} in the driver: keep the resolver open until the job has "
                "ended, and let executors reach that port)"
            ) from e

    def __getattr__(self, name: str) -> Any:
        return getattr(self._namespace, name)


def open_version(
    id: str, location: str, version: int, options: Mapping[str, str] | None, renewal: Renewal | None
) -> Any:
    """Opens a version of a dataset.

    Args:
        id: The table's id as one string.
        location: Its location.
        version: The version.
        options: Its storage options.
        renewal: Renews them; None if nobody does.
    """
    import lance

    if renewal is None:
        return lance.dataset(location, version=version, storage_options=dict(options or {}) or None)
    from lance_ns_async.model import Table, TableId
    from lance_ns_async.storage.datasets import Snapshot

    return renewal.opener().open(Table(TableId(id), location, storage_options=options), Snapshot(version))
