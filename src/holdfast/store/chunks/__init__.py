"""Chunks: bytes kept once, found by the hash of their plaintext."""
