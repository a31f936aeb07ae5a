"""What sandboxes run in, one file each, behind one contract."""
