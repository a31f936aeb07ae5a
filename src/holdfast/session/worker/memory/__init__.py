"""The worker's memory: what a cell may use, what changed since a capture, what a restore maps."""
