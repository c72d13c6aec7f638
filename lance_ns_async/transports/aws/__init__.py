"""AWS calls."""
