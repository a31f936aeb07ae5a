"""Containers: a wrapper in front of runc that freezes those that ask for it, and revives them."""

from __future__ import annotations

from importlib import import_module

# Loaded when they are asked for: most commands need little of it, and have little time.
_PLACES = {
    "RuncCommand": "command",
    "RuncHandler": "runc_handler",
    "CheckpointHandler": "checkpoint_handler",
    "ConfigHandler": "config_handler",
}

__all__ = ["CheckpointHandler", "ConfigHandler", "RuncCommand", "RuncHandler"]


def __getattr__(name: str) -> object:
    if name in _PLACES:
        return getattr(import_module(f"holdfast.oci.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
