"""Maintenance of many tables with Spark: executors compact, the driver plans and commits."""
