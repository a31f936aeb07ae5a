"""The engine `process` as somebody who is not root: with bubblewrap, and with nothing but the
kernel's own namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import blake3
import pytest

import holdfast

NOBODY = 65534
PROGRAM = """
import asyncio, json, os, sys
from pathlib import Path
from holdfast.sandbox import keeping, roots, upper
from holdfast.sandbox.body import Workshop
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.engines.namespaces import UserNamespaces
from holdfast.sandbox.engines.process import Bubblewrap, ProcessEngine
from holdfast.testing.engines import bash, begin, run

async def main(kind, folder):
    launcher = UserNamespaces() if kind == "namespaces" else Bubblewrap(Path("/usr/bin/bwrap"))
    engine = ProcessEngine(launcher=launcher)
    root = roots.default(folder / "root")
    workshop = Workshop(engine, folder / "boxes")
    body = await workshop.make(root, Limits())
    told = {"user": os.geteuid(), "boundary": engine.capabilities.boundary}
    async def say(name, script):
        ended = await bash(body, script)
        told[name] = (ended.stdout + ended.stderr).strip()
    await say("home", "cd; pwd; echo kept > note; cat note")
    await say("root", "touch /usr/x /x /etc/passwd 2>&1 | wc -l; ls / | tr '\\\\n' ' '")
    await say("host", f"cat {folder}/secret")
    await say("processes", "ls -d /proc/[0-9]* | wc -l")
    await say("first", "tr '\\\\0' ' ' < /proc/1/cmdline | cut -c1-200")
    await say("network", "cat /proc/net/dev | tail -n +3 | cut -d: -f1")
    await say("powers", "grep -E 'CapEff|CapPrm|CapAmb|NoNewPrivs' /proc/self/status")
    await say("devices", "echo x > /dev/null; head -c 4 /dev/urandom | wc -c; ls /dev/pts")
    python = await run(body, "python", "-c", "import os; print(os.cpu_count() > 0)")
    told["python"] = python.stdout.strip()
    terminal = await run(body, "tty", size=(24, 80))
    told["terminal"] = terminal.stdout.strip()
    # A checkpoint is its files; another body has them.
    packed = b"".join(upper.pack(body.build.volume.upper))
    (folder / "packed").write_bytes(packed)
    fill = lambda into: keeping.unpack_files(folder / "packed", into)
    other = await workshop.make(root, Limits(), fill=fill)
    copied = await bash(other, "cat ~/note")
    told["copied"] = copied.stdout.strip()
    await other.end(); await other.clear()
    # What runs beside is gone with the box, even in a session of its own.
    mark = folder / "boxes"
    await begin(body, "bash", "-c", "setsid sleep 7777.25 & sleep 7777.25")
    await body.end(); await body.clear(); await workshop.close()
    told["left"] = sorted(each.name for each in mark.iterdir())
    print(json.dumps(told))

asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
"""


def interpreter() -> str:
    """A Python of this version that nobody may run: the one in use may be in root's own home."""
    names = (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    for name in names:
        tried = subprocess.run(
            ["setpriv", f"--reuid={NOBODY}", "--clear-groups", name, "-c", "pass"],
            cwd="/",
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            return name
    raise AssertionError(f"nobody can run none of {names}")


@pytest.mark.parametrize("kind", ["namespaces", "bubblewrap"])
def test_somebody_who_is_not_root(kind: str) -> None:
    assert os.geteuid() == 0, "this test needs root, to become somebody else"
    folder = Path("/tmp") / f"holdfast-nobody-{os.getpid()}-{kind}"
    folder.mkdir(mode=0o700)
    try:
        (folder / "secret").write_text("of the host")
        (folder / "program.py").write_text(PROGRAM)
        for each in (folder, *folder.iterdir()):
            os.chown(each, NOBODY, NOBODY)
        packages = [str(Path(str(module.__file__)).parents[1]) for module in (holdfast, blake3)]
        user = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        words = [interpreter(), str(folder / "program.py"), kind, str(folder)]
        done = subprocess.run(
            ["setpriv", *user, *words],
            cwd=folder,
            env={"PATH": os.defpath, "HOME": str(folder), "PYTHONPATH": ":".join(packages)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout)
    finally:
        shutil.rmtree(folder)
    assert told["user"] == NOBODY
    assert told["boundary"] is False  # and it says so
    assert told["home"].split() == ["/root", "kept"]
    assert told["root"].startswith("3")  # three refusals
    assert "etc" in told["root"].split()
    assert "No such file" in told["host"]
    assert int(told["processes"]) < 8
    assert "holdfast.sandbox.agent" in told["first"]  # the agent is process 1
    assert told["network"].split() == ["lo"]
    assert [line.split()[1] for line in told["powers"].splitlines()] == [*["0" * 16] * 3, "1"]
    assert told["devices"].split()[0] == "4"
    assert told["python"] == "True"
    assert told["terminal"].startswith("/dev/pts/")
    assert told["copied"] == "kept"
    assert told["left"] == []
    assert b"7777.25" not in b"".join(
        path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()
    )
