"""Tiny GGUF files for tests and benchmarks, run by the real llama.cpp: none has learnt anything.

`scripted` models recite what a test wrote, `noise` models have random weights, so that every logit
depends on every earlier token. Both come with draft heads, in files of their own or inside.
"""
