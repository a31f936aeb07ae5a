"""Roots: what a sandbox sees as its file system before it writes anything.

A root is a folder that stays as it is, plus read-only mounts. The default is a selection of the
host: its programs and libraries, the interpreter in use, and an `/etc` that says nothing about the
host. Any other (a folder, a tar, an OCI layout) gets the agent's own interpreter besides.
"""

from __future__ import annotations

import os
import py_compile
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import holdfast
from holdfast.model.errors import BadInput, Unsupported
from holdfast.sandbox import agent, images
from holdfast.sandbox.agent import USER, begin

LAYOUT = 2  # of the default root: memory of a sandbox goes with what is mounted where
TOOLS = "/.holdfast"  # where a root has what the agent needs
# How its interpreter is told to begin: nothing of a site, no folder of whoever starts it.
_AGENT = ("-sSP", "-c", Path(str(begin.__file__)).read_text(encoding="utf-8"), f"{TOOLS}/agent")
# Neither a locale nor a time zone is looked for; with no locale its text is UTF-8.
_PLAIN = {"LC_ALL": "C", "TZ": "UTC0"}
_CORE = ("libc", "libm", "libgcc_s", "libstdc++", "libtinfo", "libz", "libssl", "libcrypto")
_ALIASES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_EMPTY = ("dev", "proc", "sys", "run", "tmp", "root", "opt", "var", "home", "mnt")
_ETC = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nuser:x:{USER}:{USER}:user:/root:/bin/bash\n",
    "group": f"root:x:0:\nuser:x:{USER}:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "resolv.conf": "",
}
# Parts of the host's /etc that programs need and that tell nothing. Copied: every mount costs a
# new sandbox time.
_ETC_COPIES = ("alternatives", "ssl/certs", "ld.so.cache", "mime.types")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host, read-only inside."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What to lay a volume over, what to mount, and how the agent is started in it."""

    name: str
    lower: Path
    mounts: tuple[Mount, ...]
    agent: tuple[str, ...]
    environ: Mapping[str, str]  # the agent's own, of which programs have nothing
    path: str  # PATH inside
    python: tuple[str, ...]  # how `python` code is run
    digest: str
    packages: tuple[str, ...] = ()  # where a session inside finds us and what we need


def default(folder: Path) -> Root:
    """The selection of the host. `folder` is where the empty skeleton goes."""
    lower = folder / "lower"
    mounts = [Mount("/usr", "/usr")]
    for name in (*_EMPTY, "usr", "etc"):
        (lower / name).mkdir(parents=True, exist_ok=True)
    (lower / "tmp").chmod(0o1777)
    for alias in _ALIASES:
        host = Path("/", alias)
        if host.is_symlink():
            _link(lower / alias, os.readlink(host).lstrip("/"))
        elif host.is_dir():
            mounts.append(Mount(f"/{alias}", f"/{alias}"))
    for name, text in _ETC.items():
        (lower / "etc" / name).write_text(text)
    for name in _ETC_COPIES:
        _copy(Path("/etc", name), lower / "etc" / name)
    prefix = os.path.realpath(sys.base_prefix)
    if not prefix.startswith("/usr/") and prefix != "/usr":
        mounts.append(Mount(prefix, prefix))
    tools = _tools(folder)
    mounts.append(Mount(str(tools), TOOLS))
    packages = _packages(tools)
    mounts += packages
    _mountpoints(lower, mounts[: -len(packages)])  # those lie below the tools
    python = f"{prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    if not prefix.startswith("/usr"):
        path = f"{prefix}/bin:{path}"
    return Root(
        name="default",
        lower=lower,
        mounts=tuple(mounts),
        agent=(python, *_AGENT),
        # Said, so that it is not searched for.
        environ={**_PLAIN, "PYTHONHOME": f"{prefix}:{os.path.realpath(sys.base_exec_prefix)}"},
        path=path,
        python=(python,),
        digest=f"host-{LAYOUT}:{sys.version.split()[0]}#{images.fingerprint(_core(python))}",
        packages=tuple(mount.target for mount in packages),
    )


def foreign(name: str, lower: Path, folder: Path, digest: str) -> Root:
    """A root that is somebody else's: the agent brings its interpreter and libraries along."""
    if not lower.is_dir():
        raise BadInput(f"the root {lower} is not a folder")
    loader = _loader()
    prefix = os.path.realpath(sys.base_prefix)
    tools = _tools(folder)
    for empty in ("usr", "python"):
        (tools / empty).mkdir(exist_ok=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    libraries = f"{TOOLS}/python/lib:{TOOLS}{os.path.dirname(loader)}"
    start = (
        f"{TOOLS}{loader}",
        "--library-path",
        libraries,
        f"{TOOLS}/python/bin/python{version}",
        *_AGENT,
    )
    mounts = (
        Mount(str(tools), TOOLS),
        Mount("/usr", f"{TOOLS}/usr"),
        Mount(prefix, f"{TOOLS}/python"),
    )
    return Root(
        name=name,
        lower=lower,
        mounts=mounts,
        agent=start,
        environ={**_PLAIN, "PYTHONHOME": f"{TOOLS}/python"},
        path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        python=("python3",),
        digest=digest,
    )


def _tools(folder: Path) -> Path:
    """The agent, compiled for the interpreter that will run it, with nothing else of ours."""
    tools = folder / "tools"
    source = Path(str(agent.__file__)).parent
    place = tools / "agent" / "holdfast" / "sandbox" / "agent"
    place.mkdir(parents=True, exist_ok=True)
    for module in sorted(source.glob("*.py")):
        py_compile.compile(str(module), str(place / f"{module.stem}.pyc"), doraise=True)
    # Run by whatever Python a root has.
    shutil.copyfile(source / "zygote.py", place / "zygote.py")
    for package in place.parents[:2]:
        # Without any, folders are looked for everywhere, which takes a new agent time.
        py_compile.compile(os.devnull, str(package / "__init__.pyc"), doraise=True)
    return tools


def _packages(tools: Path) -> list[Mount]:
    """The folders that hold this package and what it is built on, for sessions inside."""
    import blake3

    sources = {str(Path(module.__file__ or "").parents[1]) for module in (holdfast, blake3)}
    mounts = []
    for number, source in enumerate(sorted(sources)):
        (tools / "packages" / str(number)).mkdir(parents=True, exist_ok=True)
        mounts.append(Mount(source, f"{TOOLS}/packages/{number}"))
    return mounts


def _loader() -> str:
    """The dynamic loader of this machine, below /usr."""
    for name in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"):
        real = os.path.realpath(name)
        if os.path.exists(real) and real.startswith("/usr/"):
            return real
    raise Unsupported("roots of one's own need a host with its loader below /usr")


def _core(python: str) -> list[Path]:
    """What every program of the default root has in its memory. Files, of which packages keep the
    times: on another machine with the same packages they are the same."""
    loader = Path(os.path.realpath("/lib64/ld-linux-x86-64.so.2"))
    if not loader.exists():
        loader = Path(os.path.realpath("/lib/ld-linux-aarch64.so.1"))
    folder = loader.parent
    library = Path(python).parent.parent / "lib"
    names = (f"{name}.so.*" for name in _CORE)
    found = [path for name in names for path in sorted(folder.glob(name))]
    own = sorted(library.glob("libpython*.so.*"))
    return [loader, Path(python), Path("/bin/bash"), *found, *own]


def _mountpoints(lower: Path, mounts: list[Mount]) -> None:
    for mount in mounts:
        place = lower / mount.target.lstrip("/")
        if os.path.isdir(mount.source):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place, symlinks=True)
    elif source.is_file():
        shutil.copyfile(source, place)


def _link(place: Path, target: str) -> None:
    if not place.is_symlink():
        place.symlink_to(target)
