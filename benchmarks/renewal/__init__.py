"""Spark jobs that outlast their credentials."""
