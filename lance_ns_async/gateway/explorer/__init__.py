"""The explorer: server-rendered, read-only web pages of the catalog behind a gateway."""
