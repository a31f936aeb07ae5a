"""Clients of a server: sandboxes from a distance."""

from holdfast.client.process import Exit, Process
from holdfast.client.sandbox import CheckpointInfo, Sandbox
from holdfast.client.streams import Stream

__all__ = ["CheckpointInfo", "Exit", "Process", "Sandbox", "Stream"]
