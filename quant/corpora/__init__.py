"""Texts to measure on."""
