"""Reports of measurements."""
