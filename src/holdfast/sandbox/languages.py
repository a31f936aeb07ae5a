"""What an execution means as a program: pure, from a request and a root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast.model.errors import BadInput, Unsupported
from holdfast.model.tracing import request_id
from holdfast.protocol.sandbox_messages import ExecuteRequest
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.interpreter import MODULE, PLACE, SOCKET
from holdfast.sandbox.roots import Root
from holdfast.sandbox.start import Start

HOME = "/root"
# The kernel takes 128 KiB for one argument; longer code goes through a file.
LONGEST_ARGUMENT = 100_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start, and the file that must be written before."""

    start: Start
    script: tuple[str, bytes] | None = None


def plan(
    request: ExecuteRequest,
    root: Root,
    limits: Limits,
    identity: str,
    *,
    proxy: str | None = None,
    offline: bool = False,
) -> Plan:
    """How to run a request. Raises BadInput."""
    script = None
    if request.session:
        check_session(request, root)
    if request.argv is not None:
        argv = list(request.argv)
    else:
        code = request.code or ""
        by_text, by_file = interpreters(request, root)
        if len(code.encode("utf-8", "surrogatepass")) > LONGEST_ARGUMENT:
            script = (f"/tmp/.execution-{identity}", code.encode("utf-8", "surrogatepass"))
            argv = [*by_file, script[0]]
        else:
            argv = [*by_text, code]
    texts = [*argv, *request.env, *request.env.values(), request.cwd or ""]
    if any("\0" in text for text in texts) or any("=" in name for name in request.env):
        raise BadInput("code, arguments and environment hold no NUL, and names no `=`")
    env = {
        "PATH": root.path,
        "HOME": HOME,
        "USER": "user",
        **tongue(root, request.env),
        "PYTHONUNBUFFERED": "1",
        **({"TERM": "xterm-256color"} if request.pty else {}),
        **({"PYTHONPATH": ":".join(root.packages)} if request.session else {}),
        **({"HOLDFAST_REQUEST_ID": request_id.get()} if request_id.get() else {}),
        **(proxied(proxy) if proxy is not None else {}),
        **request.env,
        **({PLACE: SOCKET} if request.session else {}),
    }
    start = Start(
        argv=argv,
        env=env,
        cwd=request.cwd or HOME,
        size=(request.rows, request.columns) if request.pty else None,
        stdin=request.stdin,
        limits=ceilings(limits),
        offline=offline,
        warm=is_code(request) and script is None and not request.pty and not offline,
    )
    return Plan(start, script)


def is_code(request: ExecuteRequest) -> bool:
    """Whether it is Python that runs by itself."""
    return request.language == "python" and request.argv is None and not request.session


def tongue(root: Root, given: Mapping[str, str]) -> dict[str, str]:
    """How programs learn that text is UTF-8. The rest of this locale is what they have without any,
    so by `LC_CTYPE` alone it is the same and one file to load instead of thirteen: in gVisor a
    third of what an echo takes. In somebody else's root the locale may be missing, and a shell
    complains of this variable then, and not of `LANG`; nor must it outdo a `LANG` that is given."""
    plain = root.packages and "LANG" not in given
    return {"LC_CTYPE" if plain else "LANG": "C.UTF-8"}


def proxied(proxy: str) -> dict[str, str]:
    """How programs learn of a proxy; each looks at another spelling."""
    names = ("http_proxy", "https_proxy", "all_proxy")
    told = {**dict.fromkeys(names, proxy), "no_proxy": "localhost,127.0.0.1,::1"}
    return {**told, **{name.upper(): value for name, value in told.items()}}


def interpreters(request: ExecuteRequest, root: Root) -> tuple[list[str], list[str]]:
    """What runs code that is an argument, and what runs code in a file."""
    if request.session:
        return [*root.python, "-m", MODULE, "run"], [*root.python, "-m", MODULE, "file"]
    if request.language == "python":
        return [*root.python, "-c"], [*root.python]
    return ["bash", "-c"], ["bash"]


def check_session(request: ExecuteRequest, root: Root) -> None:
    """Raises BadInput or Unsupported for what cannot be run in a session."""
    if request.language != "python" or request.argv is not None or request.pty:
        raise BadInput("a session runs code in python, without a terminal")
    if not root.packages:
        raise Unsupported(
            f"sessions need the default root, and this sandbox has {root.name!r}",
            hint="leave `session` or `image` out",
        )


def session_checkpoint(root: Root, limits: Limits) -> Start:
    """What freezes the session of a sandbox into the sandbox's own files."""
    asked = ExecuteRequest(language="python", code="", session=True, stdin=False)
    planned = plan(asked, root, limits, "").start
    return replace(planned, argv=[*root.python, "-m", MODULE, "checkpoint"])


def ceilings(limits: Limits) -> dict[str, int]:
    """Limits that the kernel inside holds for each process, before the sandbox's own strike."""
    return {
        "DATA": limits.memory_bytes,
        "NPROC": limits.processes,
        "FSIZE": limits.disk_bytes,
        "CORE": 0,
    }
