"""Apache Polaris."""
