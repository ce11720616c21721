"""VeriLoop: a local model proposes edits, the user's own tests decide what may persist."""

__version__ = "0.1.0"
