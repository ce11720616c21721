"""The model's side of an attempt: what it is asked, and how its answer becomes a candidate."""
