"""A model loaded, answering jobs on a thread of its own, and measured."""
