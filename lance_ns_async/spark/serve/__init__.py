"""Catalog for the JVM connector, served from prefetched locations."""
