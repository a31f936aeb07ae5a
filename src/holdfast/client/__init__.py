"""Clients of a server: sandboxes from a distance."""

from holdfast.client.conversation import CheckpointInfo
from holdfast.client.process import Exit, Process
from holdfast.client.sandbox import Sandbox
from holdfast.client.streams import Stream

__all__ = ["CheckpointInfo", "Exit", "Process", "Sandbox", "Stream"]
