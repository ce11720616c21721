"""Models run over chunks of text."""
