"""Promotion: a candidate's files enter the workspace all together, or not at all."""
