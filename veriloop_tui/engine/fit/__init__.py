"""What of a model fits this machine, before it is loaded."""
