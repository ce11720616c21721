"""Staging: a candidate laid out for commands, away from the live workspace."""
