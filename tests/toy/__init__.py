"""A toy backend: what adding a catalog needs, and the contract suite on it."""
