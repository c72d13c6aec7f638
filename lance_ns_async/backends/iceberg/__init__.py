"""Iceberg REST."""
