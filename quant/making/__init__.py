"""Making quants with llama.cpp."""
