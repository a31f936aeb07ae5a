"""Restores that fail at each of their steps: what makes a step fail, and what is compared.

The steps are fault points (holdfast.model.fault_points), counted in a run that succeeds.
"""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path
from typing import Any

from holdfast.model.readiness import readable
from holdfast.session import Session
from holdfast.store import Store

# Run in a scope of its own, so that nothing of it is in the session's namespace.
_WATCH = """
exec('''
import os, errno, signal, time
from holdfast.model import fault_points
seen = []
def watcher(name):
    seen.append(name)
    if len(seen) != {at}:
        return
    if {how!r} == "full disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if {how!r} == "error":
        raise RuntimeError("the step failed")
    if {how!r} == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if {how!r} == "sleep":
        while True:
            time.sleep(60)
    if {how!r} == "hang":
        file = os.open({told!r}, os.O_WRONLY)
        os.write(file, b"at the step")
        os.close(file)
        while True:
            time.sleep(60)
fault_points.listen_everywhere(watcher)
''', {{}})
"""
_SEEN = "__import__('holdfast.model.fault_points', fromlist=['x'])._everywhere.__globals__['seen']"

SETUP = """
import builtins, contextvars, decimal, locale, logging, os, random, signal, sys, textwrap
import types, warnings
import numpy as np
from collections.abc import Sized
import matplotlib.pyplot as plt
class Kept:
    def __init__(self, n): self.n = n
def doubled(kept): return kept.n * 2
class Ends(logging.Handler): pass
kept, shared = Kept(20), [1]
both = [shared, shared]
variable = contextvars.ContextVar("variable")
made = types.ModuleType("made")
sys.modules["made"] = made
"""
# What the second checkpoint, the one that is restored, differs in; {n} tells two apart.
CHANGES = """
kept.n = {n}
value{n} = np.arange({n}.0)
def only{n}(): return {n}
class Other{n}:
    at = {n}
shared.append({n})
variable.set({n})
made.n = {n}
textwrap.dedent = lambda text: {n}
Sized.extra = {n}
os.environ["N"] = "{n}"; os.environ["TZ"] = "UTC-{n}"
sys.path.insert(0, "/path{n}")
os.chdir({folder!r})
os.umask(0o02{n})
sys.setrecursionlimit(3000 + {n})
warnings.filterwarnings("ignore", message="m{n}")
signal.signal(signal.SIGUSR1, lambda number, frame: {n})
decimal.getcontext().prec = 20 + {n}
np.set_printoptions(precision={n})
np.seterr(divide="ignore" if {n} % 2 else "raise")
logging.getLogger("one").setLevel(10 + {n})
logging.getLogger("one").handlers[:] = [Ends() for _ in range({n})]
logging.addLevelName(50 + {n}, "N{n}")
logging.getLogger("only{n}").setLevel(40)
plt.rcParams["lines.linewidth"] = {n}.5
plt.figure({n}); plt.plot([{n}])
random.seed({n}); random.random()
np.random.seed({n}); np.random.random()
"""
# One probe for each piece of worker/pieces.py, by its name.
_LOOK = """
def _look():
    import gc, linecache
    from holdfast.session.worker.labels import Labels
    from holdfast.session.worker.workspace import Workspace
    (own,) = [each for each in gc.get_objects() if type(each) is Workspace]
    labels = next(each for each in gc.get_objects() if type(each) is Labels)
    known = own.definitions
    names = {n: v for n, v in globals().items() if n != "_look"}
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    loggers = [l for l in loggers if isinstance(l, logging.Logger)]
    rng = np.random.get_state()
    mask = os.umask(0o77)
    os.umask(mask)
    return {
        "namespace": [
            [(n, id(v)) for n, v in names.items()], kept.n, doubled(kept), list(shared),
            both[0] is shared and both[1] is shared, variable.get(None),
        ],
        "definitions": [
            [(e.label, id(e.object())) for e in known.living() if e.site.name != "_look"],
            dict(known.imports), sorted(known.lost),
            [(c.number, c.text) for c in own.cells.all()
             if ("class" in c.text or "kept" in c.text) and "_look" not in c.text],
            linecache.getline("<cell 1>", 3), own.runner.flags,
        ],
        "labels": [str(sorted(each.items())) for each in labels.known_now()],
        "modules": [id(sys.modules["made"]), sorted(vars(made)), made.n,
                    sorted(n for n in sys.modules if n.startswith("made"))],
        "patches": [id(textwrap.dedent), getattr(Sized, "extra", None), id(builtins.print)],
        "process": [
            os.getcwd(), sorted(os.environ.items()), list(sys.path), sys.getrecursionlimit(),
            [str(each) for each in warnings.filters], locale.setlocale(locale.LC_ALL),
            id(signal.getsignal(signal.SIGUSR1)), gc.isenabled(), gc.get_threshold(),
            decimal.getcontext().prec, np.get_printoptions()["precision"], np.geterr(),
            dict(plt.rcParams)["lines.linewidth"], mask,
        ],
        "loggers": [
            [(l.name, l.level, l.propagate, l.disabled, [id(h) for h in l.handlers])
             for l in loggers if l.level or l.handlers],
            sorted(logging._levelToName.items()), logging.root.manager.disable,
        ],
        "figures": [
            plt.get_fignums(), [id(plt.figure(n)) for n in plt.get_fignums()],
            [len(plt.figure(n).axes[0].lines) for n in plt.get_fignums()],
        ],
        "randomness": [str(random.getstate()), [rng[0], rng[1].tolist(), *rng[2:]]],
    }
"""
# What the worker holds: checked for what is left behind. It keeps at most one file for notes.
_HELD = """
import os
sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
       if os.path.exists(f"/proc/self/fd/{n}")
       and "holdfast-notes" not in os.readlink(f"/proc/self/fd/{n}"))
"""


def watch(at: int, how: str, told: Path | None = None) -> str:
    """A cell that makes the worker's step of this number fail; 0 only counts."""
    return _WATCH.format(at=at, how=how, told=str(told))


async def steps_seen(session: Session) -> list[str]:
    """The steps that the worker has come to since it was told to watch."""
    return list((await session.execute(_SEEN, check=True)).value)


async def look(session: Session) -> dict[str, Any]:
    """All that a restore may change in a worker, by piece."""
    await session.execute(_LOOK, check=True)
    found: dict[str, Any] = (await session.execute("_look()", check=True)).value
    await session.execute("del _look", check=True)
    return found


def host(session: Session, store: Store) -> list[Any]:
    """All that a restore may change outside of the worker."""
    subject = session.subject
    head, owner = store.head(subject), store.owner(subject)
    checkpoints = [each.id for each in store.list(subject)]
    at = session._history.line.at
    return [head and head.id, checkpoints, owner and owner.url, session.alive, at and at.id,
            [str(each) for each in (s.subject for s in store.subjects())]]  # fmt: skip


def files(folder: Path) -> list[str]:
    """What lies in a store's folder, except for logs, which only grow."""
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def open_files() -> list[str]:
    """What the descriptors of this process are of."""
    gc.collect()  # an error's traceback may hold what its frames had
    numbers = os.listdir("/proc/self/fd")
    found = [f"/proc/self/fd/{number}" for number in numbers]
    names = (os.readlink(each) for each in found if os.path.exists(each))
    # The store's own sign that it is in use is renewed now and then.
    return sorted(re.sub(r"/holds/.*", "/holds", name) for name in names)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that go on running: those that end now are
    waited for. One that has ended is collected with the next capture."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if not ends(int(child))]


def ends(pid: int) -> bool:
    """Whether a process ends within a moment."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(readable([watched], 5.0))
    finally:
        os.close(watched)
