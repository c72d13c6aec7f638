"""Resolving the locations of thousands of tables on the driver."""
