"""SQL over the tables of a catalog, by DuckDB."""
