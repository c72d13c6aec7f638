"""Sum the amounts of many tables in one Spark job, at pinned versions."""

from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.local import local_spark


def main() -> None:
    with LocationResolver.connect("dir", {"root": "lake"}) as resolver:
        locations = resolver.prefetch("sales.day*", on_error="raise")
    for id, location in sorted(locations.items()):
        print(id, "at version", location.version)

    spark = local_spark(cores=2)  # or the session that you have
    try:
        sales = locations.dataframe(spark, columns=["amount"])
        totals = sales.groupBy("_table").sum("amount").orderBy("_table")
        for table, total in totals.collect():
            print(table, total)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
