"""The contract of engines: what can hold a sandbox, and what it says it can do.

An engine makes a `Box` around a root and a place for files; whatever is special about freezing one
stays behind these few methods. `holdfast.testing.engines` has the suite that each must pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from holdfast.model.errors import Unsupported
from holdfast.protocol.sandbox_messages import Limits as Asked
from holdfast.sandbox.roots import Root
from holdfast.sandbox.volume import Volume


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine declares. The suite tests what is declared and wants `unsupported` for
    the rest."""

    exact_checkpoint: bool  # memory and processes, not only files
    during_execution: bool
    fork: bool
    snapshot: bool
    network: bool
    pty: bool
    boundary: bool  # whether it is meant to hold hostile code
    prepared: bool  # a box can be made before it is known what is restored in it

    def need(self, name: str, engine: str) -> None:
        """Raises Unsupported, in words."""
        if not getattr(self, name):
            raise self.lack(name, engine)

    def lack(self, name: str, engine: str) -> Unsupported:
        what = name.replace("_", " ")
        return Unsupported(
            f"the engine {engine} cannot do this: {what}", hint="gvisor can; see holdfast doctor"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one sandbox may use."""

    memory_bytes: int = 2 << 30
    cpus: float = 2.0
    processes: int = 256
    disk_bytes: int = 2 << 30
    seconds: float = 3600.0

    def capped(self, asked: Asked | None) -> Limits:
        """What was asked for, never more than these."""
        if asked is None:
            return self
        return Limits(
            memory_bytes=min(self.memory_bytes, asked.memory_bytes or self.memory_bytes),
            cpus=min(self.cpus, asked.cpus or self.cpus),
            processes=min(self.processes, asked.processes or self.processes),
            disk_bytes=min(self.disk_bytes, asked.disk_bytes or self.disk_bytes),
            seconds=min(self.seconds, asked.seconds or self.seconds),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Everything an engine needs to make one box."""

    name: str  # unique on this machine, fit for a container's id and a folder's name
    folder: Path  # the box's own, for whatever the engine keeps
    root: Root
    volume: Volume
    limits: Limits
    network: bool = False


class Box(Protocol):
    """A sandbox's body: an engine's container with an agent in it, and the way to the agent."""

    @property
    def pipes(self) -> tuple[int, int]:
        """Descriptors to read from the agent and to write to it; whoever takes them closes them."""
        ...

    @property
    def places(self) -> Mapping[str, str]:
        """Paths of the sandbox that its agent finds elsewhere; none where it has a root."""
        ...

    def ceilings(self, limits: Mapping[str, int]) -> Mapping[str, int]:
        """Limits of a process, as the kernel below holds them for this sandbox alone."""
        ...

    @property
    def in_order(self) -> Sequence[str]:
        """Files of an image that `freeze` writes from their beginning to their end, so that they
        can be read meanwhile."""
        ...

    async def freeze(self, image: Path) -> None:
        """Stand still, with memory in `image` and files in the volume, until `thaw` or `end`.
        The agent is quiescent before. Raises CaptureFailed; then it goes on as it was."""
        ...

    async def pause(self) -> None:
        """Stand still, with files in the volume, until `thaw` or `end`; memory is not written. The
        agent is quiescent before. Raises CaptureFailed; then it goes on as it was."""
        ...

    async def thaw(self) -> None:
        """Go on. After it has raised it may be tried again."""
        ...

    async def end(self) -> None:
        """Nothing of it runs any more; quick. May be called twice."""
        ...

    async def clear(self) -> None:
        """Remove what `end` left; may take its time."""
        ...


class Waiting(Box, Protocol):
    """A box that was made, with its root mounted, and in which nothing has begun."""

    @property
    def alive(self) -> bool:
        """Whether it could still be used."""
        ...

    def limit(self, limits: Limits) -> None:
        """Hold it to other limits than it was made with. Raises OSError."""
        ...

    async def restore(self, image: Path) -> None:
        """Begin, as a box whose agent waits for `resume`; its files are in its root. Raises
        HoldfastError or OSError; then it is of no use, but to be ended."""
        ...


class Engine(Protocol):
    """Makes boxes."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def environment(self) -> Mapping[str, object]:
        """What must be the same where a checkpoint is restored."""
        ...

    async def create(self, build: Build) -> Box:
        """A box whose agent will say `ready`. Raises HoldfastError and leaves nothing."""
        ...

    async def restore(self, build: Build, image: Path) -> Box:
        """A box whose agent waits for `resume`. Raises HoldfastError and leaves nothing."""
        ...

    async def prepare(self, build: Build) -> Waiting:
        """A box that waits for an image, and ends with this process whatever ends that. Raises
        Unsupported where it cannot be had, or HoldfastError, and leaves nothing."""
        ...
