"""The engines at work: a container that really starts, freezes and comes back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.runtime import engines
from holdfast.runtime.command import Outcome, run
from holdfast.runtime.engines import Engine
from holdfast.runtime.finding import Finding, Level, Status
from holdfast.runtime.trial import STEP_SECONDS, Trial, trial
from holdfast.runtime.version import at_least, printed

LEAST_CRIU = (4, 2, 1)  # older ones fail on kernels from 6.16 on as soon as there is a socket

RUNSC_FLAGS = ("--platform=systrap", "--network=none", "--ignore-cgroups")

_BOTH = (Level.SANDBOX, Level.CONTAINER)
_SLEEP = ("/usr/bin/sleep", "300")
_MENDS = {
    "runc": "apt-get install runc iptables",
    "criu": "make setup",
    "runsc": "make setup",
    "bwrap": "apt-get install bubblewrap",
}


def absent(name: str, environ: Mapping[str, str], levels: tuple[Level, ...]) -> Finding:
    """The finding for an engine that was not found, or not where the user said it is."""
    variable = engines.VARIABLES.get(name)
    given = environ.get(variable) if variable else None
    if variable and given:
        detail = f"{variable} names {given}, which is not a program"
        return Finding(name, Status.BROKEN, detail, mends=f"unset {variable}", enables=levels)
    return Finding(name, Status.MISSING, "not found", mends=_MENDS[name], enables=levels)


def version_of(engine: Engine, environ: Mapping[str, str]) -> tuple[str | None, Outcome]:
    """What the engine says its version is, and how asking went."""
    outcome = run((engine.program, "--version"), seconds=STEP_SECONDS, environ=environ)
    return (printed(engine.name, outcome.stdout) if outcome.succeeded else None), outcome


def probe_runc(environ: Mapping[str, str] = os.environ) -> Finding:
    """Run `true` in a container."""
    engine = engines.find("runc", environ)
    if engine is None:
        return absent("runc", environ, _BOTH)
    paths = engines.environment(environ)
    version, asked = version_of(engine, paths)
    if version is None:
        return broken("runc", engine, asked.reason(), _BOTH, reinstall(engine))
    if os.geteuid() != 0:
        return needs_root("runc", engine, version, _BOTH)
    with trial((str(engine.program),), ("/usr/bin/true",), paths) as it:
        outcome = it.command("run", "--bundle", str(it.folder), it.name)
    if not outcome.succeeded:
        return broken("runc", engine, f"a container did not run: {outcome.reason()}", _BOTH)
    return works("runc", engine, version, "a container ran", _BOTH)


def probe_criu(environ: Mapping[str, str] = os.environ) -> Finding:
    """Ask `criu check`, then freeze a container with it and bring it back."""
    levels = _BOTH
    engine = engines.find("criu", environ)
    if engine is None:
        return absent("criu", environ, levels)
    paths = engines.environment(environ)
    version, asked = version_of(engine, paths)
    if version is None:
        return broken("criu", engine, asked.reason(), levels, reinstall(engine))
    if os.geteuid() != 0:
        return needs_root("criu", engine, version, levels)
    check = run((engine.program, "check"), seconds=STEP_SECONDS, environ=paths)
    if not check.succeeded:
        return broken("criu", engine, f"criu check: {check.reason()}", levels)
    runc = engines.find("runc", environ)
    if runc is None:
        detail = f"{version}, criu check is content; without runc nothing can be tried"
        return Finding("criu", Status.LIMITED, detail, mends=_MENDS["runc"], enables=levels)
    with trial((str(runc.program),), _SLEEP, paths) as it:
        trouble = freeze_and_thaw(it)
    if trouble is not None:
        mends = None if at_least(version, LEAST_CRIU) else _MENDS["criu"]
        return broken("criu", engine, f"version {version}: {trouble}", levels, mends)
    if engine.program.name != "criu":
        detail = f"{version}, but runc looks for a program called criu, not {engine.program}"
        return Finding("criu", Status.LIMITED, detail, mends=_MENDS["criu"], enables=levels)
    if not at_least(version, LEAST_CRIU):
        detail = f"{version} froze a container here, but fails on new kernels once it has a socket"
        return Finding("criu", Status.LIMITED, detail, mends=_MENDS["criu"], enables=levels)
    return works("criu", engine, version, "a container was frozen and brought back", levels)


def freeze_and_thaw(it: Trial) -> str | None:
    """Start, checkpoint and restore a runc container; the trouble in words, or None."""
    place = ("--image-path", str(it.images), "--work-path", str(it.work))
    bundle = ("--bundle", str(it.folder))
    # Detached containers keep their streams open, so these must not be pipes that we read.
    started = it.command("run", "--detach", *bundle, it.name, capture=False)
    if not started.succeeded:
        return f"a container did not start: {started.reason()}"
    frozen = it.command("checkpoint", *place, it.name)
    if not frozen.succeeded:
        return f"checkpoint: {last_error(it.work / 'dump.log') or frozen.reason()}"
    thawed = it.command("restore", "--detach", *place, *bundle, it.name, capture=False)
    if not thawed.succeeded:
        return f"restore: {last_error(it.work / 'restore.log') or thawed.reason()}"
    state = it.command("state", it.name)
    if '"status": "running"' not in state.stdout:
        return "the restored container does not run"
    return None


def last_error(log: Path) -> str | None:
    """The last line in which criu calls something an error, from the end of its log."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 64 * 1024))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:  # criu did not come so far as to write one
        return None
    errors = [line for line in lines if "Error (" in line]
    return errors[-1].strip()[:300] if errors else None


def probe_gvisor(environ: Mapping[str, str] = os.environ) -> Finding:
    """Run `true` in a gVisor sandbox, then checkpoint one that sleeps."""
    levels = (Level.SANDBOX,)
    engine = engines.find("runsc", environ)
    if engine is None:
        return absent("runsc", environ, levels)
    paths = engines.environment(environ)
    version, asked = version_of(engine, paths)
    if version is None:
        return broken("runsc", engine, asked.reason(), levels, reinstall(engine))
    if os.geteuid() != 0:
        return needs_root("runsc", engine, version, levels)
    command = (str(engine.program), *RUNSC_FLAGS)
    with trial(command, ("/usr/bin/true",), paths) as it:
        outcome = it.command("run", "--bundle", str(it.folder), it.name)
    if not outcome.succeeded:
        return broken("runsc", engine, f"a sandbox did not run: {outcome.reason()}", levels)
    with trial(command, _SLEEP, paths) as it:
        it.command("run", "--detach", "--bundle", str(it.folder), it.name, capture=False)
        frozen = it.command("checkpoint", "--image-path", str(it.images), it.name)
    if not frozen.succeeded:
        return broken("runsc", engine, f"checkpoint: {frozen.reason()}", levels)
    return works("runsc", engine, version, "a sandbox ran and was checkpointed", levels)


def probe_bubblewrap(environ: Mapping[str, str] = os.environ) -> Finding:
    """Run `true` with every namespace of its own."""
    levels = (Level.SANDBOX,)
    engine = engines.find("bwrap", environ)
    if engine is None:
        return absent("bwrap", environ, levels)
    paths = engines.environment(environ)
    version, asked = version_of(engine, paths)
    if version is None:
        return broken("bwrap", engine, asked.reason(), levels, reinstall(engine))
    argv = (engine.program, "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "true")
    outcome = run(argv, seconds=STEP_SECONDS, environ=paths)
    if not outcome.succeeded:
        return broken("bwrap", engine, outcome.reason(), levels)
    return works("bwrap", engine, version, "a command ran in namespaces of its own", levels)


def works(name: str, engine: Engine, version: str, what: str, levels: tuple[Level, ...]) -> Finding:
    return Finding(name, Status.OK, f"{version}, {what} ({engine.program})", enables=levels)


def broken(
    name: str, engine: Engine, why: str, levels: tuple[Level, ...], mends: str | None = None
) -> Finding:
    return Finding(name, Status.BROKEN, f"{why} ({engine.program})", mends=mends, enables=levels)


def reinstall(engine: Engine) -> str:
    """What mends a program that cannot even say its version."""
    named = engine.source.startswith("HOLDFAST_")
    return f"unset {engine.source}" if named else _MENDS[engine.name]


def needs_root(name: str, engine: Engine, version: str, levels: tuple[Level, ...]) -> Finding:
    """It is there, and whether it works cannot be tried without root."""
    detail = f"{version}, not tried: it needs root ({engine.program})"
    return Finding(name, Status.LIMITED, detail, mends="sudo holdfast doctor", enables=levels)
