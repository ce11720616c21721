"""The engine as an HTTP server."""
