"""Writes of one DataFrame into many tables with Spark."""
