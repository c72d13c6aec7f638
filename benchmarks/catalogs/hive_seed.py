"""Fills a Hive Metastore with the bindings of the peer, so that the measured code takes no part in it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from hive_metastore_client import HiveMetastoreClient
from thrift_files.libraries.thrift_hive_metastore_client import ttypes as hms

from benchmarks.catalogs.sites import Extent

CONNECTIONS = 4


def seed(uri: str, extent: Extent, location: str) -> None:
    """Creates the catalog, the database and all tables; tables that are not Lance tables are text tables of Hive."""
    catalog, database = extent.namespace
    with connect(uri) as client:
        client.create_catalog(hms.CreateCatalogRequest(hms.Catalog(name=catalog, locationUri=location)))
        client.create_database(hms.Database(name=database, locationUri=extent.root, catalogName=catalog))
    tables = [table(extent, name, is_lance) for name, is_lance in extent.names()]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = [tables[number::CONNECTIONS] for number in range(CONNECTIONS)]
        for _ in pool.map(lambda share: create(uri, share), shares):
            pass


def create(uri: str, tables: list[Any]) -> None:
    """Creates some tables, one after another."""
    with connect(uri) as client:
        for each in tables:
            client.create_table(each)


def table(extent: Extent, name: str, is_lance: bool) -> Any:
    """Returns an external table of two columns, as the metastore stores it."""
    catalog, database = extent.namespace
    descriptor = hms.StorageDescriptor(
        cols=[hms.FieldSchema("id", "bigint", ""), hms.FieldSchema("text", "string", "")],
        location=extent.location(name),
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=hms.SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"),
    )
    # Without this, the metastore lists the directory of each new table.
    parameters = {"EXTERNAL": "TRUE", "DO_NOT_UPDATE_STATS": "true", "comment": "embeddings of one day"}
    return hms.Table(
        tableName=name,
        dbName=database,
        catName=catalog,
        owner="bench",
        sd=descriptor,
        partitionKeys=[],
        parameters={**parameters, "table_type": "lance"} if is_lance else parameters,
        tableType="EXTERNAL_TABLE",
    )


@contextmanager
def connect(uri: str) -> Iterator[Any]:
    """Returns a connection by the metastore's own protocol."""
    address = urlsplit(uri)
    with HiveMetastoreClient(host=address.hostname, port=address.port) as client:
        yield client
