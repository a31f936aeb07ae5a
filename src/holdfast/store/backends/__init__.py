"""Backends: where a store's log and volumes live."""
