"""What is kept of a workspace: snapshots, their bytes, and the way back into the live files."""
