"""A gateway with a real identity provider."""
