"""The namespaces that users hold, and the requests and responses of the spec."""
