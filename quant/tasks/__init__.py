"""Repair tasks that quants are tried on."""
