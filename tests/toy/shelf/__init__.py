"""The folder of the toy backend, as in `lance_ns_async/backends/`."""
