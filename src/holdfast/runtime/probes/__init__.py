"""Probes: each tries one thing for real and returns a finding; none raises for what it finds."""
