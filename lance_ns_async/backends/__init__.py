"""Backends: the interface, one folder for each catalog, and shared code."""
