"""Grammars: checked, and made from JSON schemas."""
