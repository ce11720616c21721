"""Quant comparison: how much each quant of a model lost, at what size."""
