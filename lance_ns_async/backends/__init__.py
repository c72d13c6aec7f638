"""Backends: one folder for each catalog, and shared modules."""
