"""The append-only record of every attempt, and the check that nobody changed it."""
