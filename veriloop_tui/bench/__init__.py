"""How fast a model is here: a fixed set of coding prompts, and what came out of them."""
