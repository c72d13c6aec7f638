"""Lakekeeper."""
