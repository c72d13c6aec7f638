"""Reading resolved tables as one DataFrame."""
