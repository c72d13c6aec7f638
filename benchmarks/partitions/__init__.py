"""Planning over a partitioned directory with many partitions."""
