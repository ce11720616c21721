"""GGUF files: their headers read and judged, here and on servers."""
