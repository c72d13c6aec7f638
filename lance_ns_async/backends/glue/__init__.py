"""The backend for AWS Glue."""
