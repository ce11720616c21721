"""Asking an engine, ours or another server's."""
