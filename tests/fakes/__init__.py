"""Small in-process catalogs that speak the real wire, for tests."""
