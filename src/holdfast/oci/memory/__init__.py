"""A container's memory as CRIU dumps it: which pages are where, and which have changed."""
