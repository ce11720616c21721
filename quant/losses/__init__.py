"""What logits lose: scoring, statistics, and files of base logits."""
