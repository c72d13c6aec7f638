"""Spark with the Lance connector, served by the driver."""
