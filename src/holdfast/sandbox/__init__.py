"""Sandboxes: untrusted code with its processes and files, frozen and brought back."""
