"""AWS Glue."""
