"""Families of objects that pickle does not know, or not well enough: one module for each.

A family says how its objects are taken apart, and has the builders that put them together
again. The builders' names are part of the format: they may be added to, not renamed.
"""
