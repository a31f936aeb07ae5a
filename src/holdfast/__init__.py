"""Holdfast freezes running work and brings it back."""

__version__ = "0.1.0"
