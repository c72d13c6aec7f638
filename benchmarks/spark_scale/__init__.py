"""Benchmark of Spark jobs over up to 100,000 tables."""
