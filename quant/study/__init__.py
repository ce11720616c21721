"""What is measured, and what was."""
