"""Small in-process catalogs that use the real protocols, for tests."""
