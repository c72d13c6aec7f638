"""The sync face of the async namespace."""
