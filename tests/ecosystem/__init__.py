"""The packages that take a Lance namespace, given ours."""
