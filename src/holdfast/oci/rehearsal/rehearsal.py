"""A rehearsal: runc and CRIU make the processes again, and stop them.

CRIU lets go of a process before it stops it, so each may run for a moment. It meets nobody then:
its files are a layer of its own, and its network is empty.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.model.errors import Unsupported
from holdfast.oci import vault
from holdfast.oci.config_handler import Config
from holdfast.oci.engine import EngineFailed, Limits, Runc
from holdfast.oci.layer import capture
from holdfast.oci.layer.extract import extract
from holdfast.oci.likeness import check_likeness
from holdfast.oci.overlay import Overlay
from holdfast.oci.policy import Policy
from holdfast.oci.rehearsal import script
from holdfast.oci.rehearsal.stage import EmptyNetwork, lay_over, stand_in
from holdfast.oci.standstill import STOPPED, numbers
from holdfast.oci.state import Process
from holdfast.runtime.trial import clear, detach

_PREFIX = "rehearsal-"
_NAME = "rehearsal"
_CRIU = ("tcp-close", STOPPED)  # nobody answers there, and nobody goes on
_KEPT = "--tcp-established"
_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Cast:
    """What came back: the host's numbers of its processes by their own, and the writable layer,
    captured before any of them was there."""

    processes: Mapping[int, int]
    layer: Path


@contextmanager
def rehearsal(
    folder: Path, overlay: Overlay, policy: Policy, environ: Mapping[str, str] = os.environ
) -> Iterator[Cast]:
    """Bring back what a vault fetched into `folder`, over the image of the container that has this
    overlay; all of it is gone in the end.

    Raises Unsupported when that cannot be tried here without harm, and EngineFailed when it was
    tried and does not work.
    """
    work = Path(policy.work_path)
    sweep(work, environ)
    place = work / f"{_PREFIX}{_owner()}"
    runc = Runc(("--root", str(place / "state")), environ)
    runc.criu()
    config = json.loads((folder / vault.CONFIG).read_bytes())
    environment = json.loads((folder / vault.ENVIRONMENT).read_bytes())
    check_likeness(environment, config)
    script.check(config)
    with ExitStack() as stack:
        stack.callback(_clear, place, runc)
        place.mkdir(parents=True, mode=0o700)
        point = place / "rootfs"
        upper = lay_over(overlay.lower, place / "layer", point)
        with (folder / vault.LAYER).open("rb") as stream:
            extract(stream, str(upper), below=str(point))
        with (place / "captured").open("xb") as out:
            capture.write(str(upper), out)
        network = EmptyNetwork() if script.joins_network(config) else None
        if network is not None:
            stack.callback(network.close)
        _write(place, config, environment, network)
        back = _restore(runc, place, folder / vault.MEMORY, environment, policy)
        yield Cast(back, place / "captured")


def sweep(work: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Clear away what rehearsals left whose process was killed."""
    for place in work.glob(f"{_PREFIX}*"):
        pid, _, started = place.name.removeprefix(_PREFIX).partition("-")
        if pid.isdigit() and started.isdigit() and not Process(int(pid), int(started)).alive:
            _clear(place, Runc(("--root", str(place / "state")), environ))


def _owner() -> str:
    this = Process.current()
    return f"{this.pid}-{this.started}"


def _write(
    place: Path, config: Config, environment: Mapping[str, Any], network: EmptyNetwork | None
) -> None:
    """Make the bundle out of the container's configuration."""
    bound = script.bound(config)
    sources = {
        each: stand_in(each, place / "bound" / str(number)) for number, each in enumerate(bound)
    }
    changed = script.harmless(
        config,
        cgroup=f"/holdfast-{place.name}",
        criu=str(place / "criu.conf"),
        network=None if network is None else network.path,
        sources=sources,
    )
    lines = dict.fromkeys([*(environment.get("criu_options") or ()), *_CRIU])
    (place / "criu.conf").write_text("".join(f"{line}\n" for line in lines))
    (place / "config.json").write_text(json.dumps(changed))


def _restore(
    runc: Runc, place: Path, memory: Path, environment: Mapping[str, Any], policy: Policy
) -> dict[int, int]:
    logs = place / "criu"
    logs.mkdir()
    options = [each for each in environment["options"] if not each.startswith(_KEPT)]
    argv = [
        *runc.globals,
        *("restore", "--detach", "--no-subreaper", *options, "--bundle", str(place)),
        *("--image-path", str(memory), "--work-path", str(logs), _NAME),
    ]
    limits = Limits(policy.restore_seconds, logs, policy.log_bytes)
    try:
        runc.supervise(argv, limits, streams=False, started=lambda process: None)
    except EngineFailed as error:
        raise EngineFailed(f"it does not come back: {error}") from error
    return _standing_still(runc)


def _standing_still(runc: Runc) -> dict[int, int]:
    """The processes by the numbers that they have inside. Raises Unsupported when they run."""
    end = time.monotonic() + _STOP_SECONDS
    state = runc.state(_NAME) or {}
    depth = len(numbers(int(str(state.get("pid"))))) - 1
    while True:
        found = runc.processes(_NAME)
        if all(_is_stopped(each) for each in found):
            return {numbers(each)[depth]: each for each in found}
        if time.monotonic() > end:
            raise Unsupported("this CRIU does not let it stand still")
        time.sleep(0.01)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (
        b"T",
        b"t",
        b"Z",
    )


def _clear(place: Path, runc: Runc) -> None:
    detach(place / "state")
    runc.call("delete", "--force", _NAME)
    clear(place)
