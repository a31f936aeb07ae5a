"""The engine `process` as somebody who is not root: with bubblewrap, with nothing but the kernel's
own namespaces, and with nothing at all."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.strangers import NOBODY, folder_of_nobody, run_as_nobody

PROGRAM = """
import asyncio, json, os, sys
from pathlib import Path
from holdfast.sandbox import keeping, roots, upper
from holdfast.sandbox.body import Workshop
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.engines.namespaces import UserNamespaces
from holdfast.sandbox.engines.process import Bubblewrap, ProcessEngine
from holdfast.testing.programs import bash, begin, run

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


PLAIN = """
import asyncio, json, os, sys
from pathlib import Path
from holdfast.model.errors import Unsupported
from holdfast.sandbox import keeping, roots, upper
from holdfast.sandbox.body import Workshop
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.engines.plain import Plain
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.protocol.sandbox_messages import ExecuteRequest
from holdfast.sandbox.files import Files
from holdfast.sandbox.languages import plan
from holdfast.testing.programs import bash, begin, run

async def main(kind, folder):
    engine = ProcessEngine(launcher=Plain())
    root = roots.default(folder / "root")
    workshop = Workshop(engine, folder / "boxes")
    told = {"user": os.geteuid(), "boundary": engine.capabilities.boundary}
    try:
        await workshop.make(root, Limits())
    except Unsupported as error:
        told["refused"] = str(error)
    told["nothing"] = sorted(each.name for each in (folder / "boxes").iterdir())
    body = await workshop.make(root, Limits(), network=True)
    home = await bash(body, "cd; pwd; echo kept > note; cat note; echo $TMPDIR")
    told["home"] = home.stdout.split()
    told["own"] = str(body.build.volume.upper)
    files = Files(body.line)
    await files.write("/tmp/script", b"echo run")
    told["script"] = (await run(body, "bash", "/tmp/script")).stdout.strip()
    told["read"] = (await files.read("/root/note")).decode().strip()
    terminal = await run(body, "tty", size=(24, 80))
    told["terminal"] = terminal.stdout.strip()
    (folder / "packed").write_bytes(b"".join(upper.pack(body.build.volume.upper)))
    fill = lambda into: keeping.unpack_files(folder / "packed", into)
    other = await workshop.make(root, Limits(), network=True, fill=fill)
    told["copied"] = (await bash(other, "cat ~/note")).stdout.strip()
    for each, code in ((body, "x = 'first'"), (other, "print('x' in globals())")):
        asked = ExecuteRequest(language="python", code=code, session=True, stdin=False)
        process = await each.line.start(plan(asked, root, Limits(), "").start)
        how = await process.wait()
        said = b"".join(piece.data for piece in process.replay.after(0))
        told.setdefault("session", []).append([how.code, said.decode().strip()])
    await other.end(); await other.clear()
    script = "setsid setsid sleep 7777.5 & setsid sleep 7777.5 & disown -a; echo on; exec sleep 1"
    assert (await bash(body, script)).stdout == "on\\n"
    await body.end(); await body.clear(); await workshop.close()
    told["left"] = sorted(each.name for each in (folder / "boxes").iterdir())
    print(json.dumps(told))

asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
"""


def as_nobody(program: str, kind: str) -> dict[str, Any]:
    """What a program says that runs in a folder of nobody's."""
    with folder_of_nobody(kind) as folder:
        (folder / "secret").write_text("of the host")
        (folder / "program.py").write_text(program)
        done = run_as_nobody(folder, str(folder / "program.py"), kind, str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def running(word: bytes) -> bool:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes())
    return any(word in line for line in lines)


@pytest.mark.parametrize("kind", ["namespaces", "bubblewrap"])
def test_somebody_who_is_not_root(kind: str) -> None:
    told = as_nobody(PROGRAM, kind)
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
    assert not running(b"7777.25")


def test_without_any_walls() -> None:
    """Own folders and nothing else; what cannot be had is refused, and nothing is left running."""
    told = as_nobody(PLAIN, "plain")
    assert told["user"] == NOBODY
    assert told["boundary"] is False
    assert "cut off from the network" in told["refused"]
    assert told["nothing"] == []
    own = told["own"]
    assert told["home"] == [f"{own}/root", "kept", f"{own}/tmp"]
    assert (told["script"], told["read"], told["copied"]) == ("run", "kept", "kept")
    assert told["terminal"].startswith("/dev/pts/")
    assert told["session"] == [[0, ""], [0, "False"]]  # each has one of its own
    assert told["left"] == []
    assert not running(b"7777.5")
