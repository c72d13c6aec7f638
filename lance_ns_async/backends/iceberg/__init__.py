"""The backend for Iceberg REST catalogs."""
