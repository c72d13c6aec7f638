"""Print the columns and the number of rows of each table, without async."""

from lance_ns_async import Namespace


def main() -> None:
    with Namespace.connect("dir", {"root": "lake"}) as ns:
        opened = ns.open_many(ns.iter_tables("sales"))
        opened.raise_for_errors()
        for id, dataset in sorted(opened.tables.items()):
            rows, columns = dataset.count_rows(), dataset.schema.names
            print(id, "has", rows, "rows of", *columns)


if __name__ == "__main__":
    main()
