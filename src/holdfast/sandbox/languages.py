"""What an execution means as a program: pure, from a request and a root."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.errors import BadInput
from holdfast.protocol.sandbox_messages import ExecuteRequest
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.line import Start
from holdfast.sandbox.roots import Root

HOME = "/root"
# The kernel takes 128 KiB for one argument; longer code goes through a file.
LONGEST_ARGUMENT = 100_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start, and the file that must be written before."""

    start: Start
    script: tuple[str, bytes] | None = None


def plan(request: ExecuteRequest, root: Root, limits: Limits, identity: str) -> Plan:
    """How to run a request. Raises BadInput."""
    script = None
    if request.argv is not None:
        argv = list(request.argv)
    else:
        code = request.code or ""
        interpreter = [*root.python] if request.language == "python" else ["bash"]
        if len(code.encode("utf-8", "surrogatepass")) > LONGEST_ARGUMENT:
            script = (f"/tmp/.execution-{identity}", code.encode("utf-8", "surrogatepass"))
            argv = [*interpreter, script[0]]
        else:
            argv = [*interpreter, "-c", code]
    texts = [*argv, *request.env, *request.env.values(), request.cwd or ""]
    if any("\0" in text for text in texts) or any("=" in name for name in request.env):
        raise BadInput("code, arguments and environment hold no NUL, and names no `=`")
    env = {
        "PATH": root.path,
        "HOME": HOME,
        "USER": "user",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        **({"TERM": "xterm-256color"} if request.pty else {}),
        **request.env,
    }
    start = Start(
        argv=argv,
        env=env,
        cwd=request.cwd or HOME,
        size=(request.rows, request.columns) if request.pty else None,
        stdin=request.stdin,
        limits=ceilings(limits),
    )
    return Plan(start, script)


def ceilings(limits: Limits) -> dict[str, int]:
    """Limits that the kernel inside holds for each process, before the sandbox's own strike."""
    return {
        "DATA": limits.memory_bytes,
        "NPROC": limits.processes,
        "FSIZE": limits.disk_bytes,
        "CORE": 0,
    }
