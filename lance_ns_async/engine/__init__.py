"""Many tables at once: describe, list, walk, locate."""
