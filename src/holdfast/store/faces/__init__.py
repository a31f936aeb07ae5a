"""Faces: what one can do with a store, group by group. `Store` is all of them together."""
