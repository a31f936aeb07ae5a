"""Rehearsals: a container's checkpoint comes back in a scratch place, and ends there."""

from holdfast.oci.rehearsal.rehearsal import Cast, rehearsal

__all__ = ["Cast", "rehearsal"]
