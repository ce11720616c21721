"""From tokens to tokens on llama.cpp: memory, speculation, sampling."""
