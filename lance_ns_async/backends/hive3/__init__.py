"""Hive Metastore 3 and 4."""
