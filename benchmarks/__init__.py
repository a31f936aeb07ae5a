"""Measurements, with the peers side by side in the same run."""
