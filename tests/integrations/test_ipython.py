"""`%load_ext holdfast` in real Jupyter kernels, killed and resumed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import pytest
from tests.integrations.kernel import DEADLINE, Kernel, wait_for

from holdfast.integrations.ipython.magics import _only_magic, _without_marker
from holdfast.integrations.ipython.names import is_own, session_name
from holdfast.session.worker.memory.pagemap import PAGE, Pagemap
from holdfast.store import Store, open_store
from holdfast.view.reports import read_report

Start = Callable[..., Kernel]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    kernels: list[Kernel] = []

    def begin(**environ: str) -> Kernel:
        kernels.append(Kernel(tmp_path, **{"HOLDFAST_SESSION": "analysis", **environ}))
        return kernels[-1]

    yield begin
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Store]:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return lambda: open_store(str(tmp_path / "store"))


def ends_with(made: str, reason: str) -> bool:
    several = re.fullmatch(r"cells \d+ to (\d+)", made)
    return reason == (f"cell {several[1]}" if several else made)


def durable(store: Store, reason: str) -> None:
    """Wait until the checkpoint after a cell is there; it may be of cells before it as well."""
    end = time.monotonic() + DEADLINE
    while (head := store.head("session/analysis")) is None or not ends_with(head.reason, reason):
        assert time.monotonic() < end, f"{head} is not {reason}"
        time.sleep(0.05)


LOAD = "%load_ext holdfast"
WORK = """\
import io
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
rows = pd.DataFrame({"city": ["Oslo", "Rome"], "rain": [3.5, 1.5]})
grid = np.arange(200_000.0).reshape(500, 400)
row = grid[7]
class City:
    def __init__(self, name): self.name = name
    def wet(self): return bool(rain_of(self.name) > 2)
def rain_of(name):
    return rows.loc[rows.city == name, "rain"].item()
oslo = City("Oslo")
shell = get_ipython()
fig, ax = plt.subplots()
_ = ax.plot([1, 2, 3])
def picture():
    out = io.BytesIO()
    fig.savefig(out, format="raw", dpi=40)
    return sum(out.getvalue())
"""


def test_a_killed_kernel_goes_on_in_a_new_one(start: Start, store: Callable[[], Store]) -> None:
    kernel = start()
    kernel.run(LOAD)
    assert "session/analysis, new" in kernel.said
    kernel.run(WORK)
    assert kernel.run("float(rows.rain.mean())") == 2.5
    kernel.run("fig")
    seen = kernel.run("picture()")
    durable(store(), f"cell {kernel.number}")
    before = kernel.number
    kernel.kill()

    kernel = start()
    kernel.run(LOAD)
    assert f"(cells 2 to {before})" in kernel.said
    assert "came back" in kernel.said
    assert "did not" not in kernel.said
    assert kernel.run("oslo.wet(), type(oslo) is City, row.base is grid.base") == (True, True, True)
    assert kernel.number > before  # numbers go on
    assert kernel.run("(grid.__setitem__((7, 3), -1.0), float(row[3]))[1]") == -1.0
    assert kernel.run("picture()") == seen
    shown = f"(Out[3], _3, Out[{before}] == {seen}, Out[4] is fig, shell is get_ipython())"
    assert kernel.run(shown) == (2.5, 2.5, True, True, True)
    source = kernel.run("import inspect; inspect.getsource(rain_of)")
    assert source.startswith("def rain_of(name):")
    assert kernel.run("In[-1].startswith('In[-1]'), len(In) == get_ipython().execution_count") == (
        True,
        True,
    )


SLOWLY = """\
exec('''
import os, time, IPython
history = IPython.get_ipython().holdfast._notebook.history
save = history.save
def slowly(*args, **options):
    while not os.path.exists("gate"):
        time.sleep(0.01)
    return save(*args, **options)
history.save = slowly
''', {})
"""


def test_no_cell_waits_for_a_large_checkpoint(
    start: Start, store: Callable[[], Store], tmp_path: Path
) -> None:
    """Cells that find no room share the checkpoint that is made as soon as there is some."""
    gate = tmp_path / "gate"
    kernel = start()
    kernel.run(LOAD)
    kernel.run("import numpy as np\nlarge = np.ones(3_000_000)")
    durable(store(), f"cell {kernel.number}")
    kernel.run_silently(SLOWLY)
    for number in range(5):
        kernel.run(f"x = {number}")  # else it would not come back
    gate.touch()
    durable(store(), f"cell {kernel.number}")  # by itself
    gate.unlink()
    for number in range(5, 10):
        kernel.run(f"x = {number}")
    kernel.ask_to_end()
    gate.touch()
    kernel.ends()
    made = store().list("session/analysis")
    assert ends_with(made[0].reason, f"cell {kernel.number}")
    assert len(made) < kernel.number

    kernel = start()
    kernel.run(LOAD)
    assert kernel.run("x, len(large)") == (9, 3_000_000)


def test_cells_without_a_pause_share_a_checkpoint(start: Start, store: Callable[[], Store]) -> None:
    kernel = start()
    kernel.run(LOAD)
    for number in range(2, 8):
        kernel.run(f"x = {number}")
    durable(store(), "cell 7")  # by itself, in the pause
    made = [each.reason for each in store().list("session/analysis")]
    assert len(made) < 6, made
    kernel.run("x = 8")
    kernel.run("%log")  # which leaves nothing out
    assert "cell 8" in kernel.said
    kernel.run("x = 9")
    kernel.ask_to_end()
    kernel.ends()
    assert store().list("session/analysis")[0].reason == "cell 10"


def test_much_work_waits_for_no_pause(start: Start, store: Callable[[], Store]) -> None:
    kernel = start(HOLDFAST_WINDOW="0.2")
    kernel.run(LOAD)
    work = "import time\nuntil = time.perf_counter() + 0.3\nwhile time.perf_counter() < until: pass"
    for _ in range(4):
        kernel.run(work)
    durable(store(), f"cell {kernel.number}")
    assert len(store().list("session/analysis")) >= 4
    kernel.run("%holdfast --window 60")
    assert "at most 60 s of work" in kernel.said
    kernel.run("%holdfast --window soon", fails=True)
    assert "'soon' is no number of seconds; %holdfast --window 2" in kernel.said
    kernel.run("%holdfast")
    assert "now 60 s" in kernel.said


def test_a_kernel_that_ends_itself_is_saved(start: Start, store: Callable[[], Store]) -> None:
    kernel = start()
    kernel.run(LOAD)
    kernel.run("x = 1")
    kernel.run_until_it_dies("y = 2\nexit()")
    durable(store(), "cell 3")


HANGS = """\
import os, time
kernel = os.getpid()
class Hangs:
    def __reduce__(self):
        if os.getpid() != kernel:
            open("copy", "a").write(f"{os.getpid()}\\n")
            while True: time.sleep(60)
        return (Hangs, ())
"""


def test_a_copy_that_hangs_costs_no_checkpoint(
    start: Start, store: Callable[[], Store], tmp_path: Path
) -> None:
    kernel = start()
    kernel.run(LOAD)
    kernel.run(HANGS)
    kernel.run("hangs = [Hangs()]")
    kernel.run("%checkpoint one")
    kernel.run("x = 2")
    kernel.run("%checkpoint two")
    kernel.run("x = 3")
    durable(store(), f"cell {kernel.number}")
    copies = (tmp_path / "copy").read_text().split()
    assert len(copies) <= 2, "it is remembered"
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in copies))
    kernel.kill()
    kernel = start()
    kernel.run(LOAD)
    assert kernel.run("x, type(hangs[0]) is Hangs") == (3, True)


def test_a_killed_kernel_leaves_no_copy(start: Start, tmp_path: Path) -> None:
    kernel = start()
    kernel.run(LOAD)
    kernel.run(HANGS)
    kernel.run("hangs = Hangs()")
    wait_for((tmp_path / "copy").exists)
    wait_for(lambda: (tmp_path / "copy").read_text().endswith("\n"))
    (copy,) = (tmp_path / "copy").read_text().split()
    kernel.die()
    wait_for(lambda: not Path(f"/proc/{copy}").exists())


def test_looking_waits_for_no_large_checkpoint(
    start: Start, store: Callable[[], Store], tmp_path: Path
) -> None:
    kernel = start()
    kernel.run(LOAD)
    kernel.run("import numpy as np\nlarge = np.ones(3_000_000)")
    first = f"cell {kernel.number}"
    durable(store(), first)
    kernel.run_silently(SLOWLY)
    kernel.run("x = 1")
    second = f"cell {kernel.number}"
    for look in ("%log", "%whos"):
        kernel.run(look)  # else it would not come back
        assert f"on its way: the checkpoint of {second}" in kernel.said
    kernel.run("y = 1")
    kernel.run("z = 1")
    put_off = kernel.number
    kernel.run("%log")
    assert first in kernel.said
    assert f"the checkpoint of {second}, cells {put_off - 1} to {put_off}" in kernel.said
    Timer(1, (tmp_path / "gate").touch).start()
    kernel.run("%diff")
    assert f"waiting for the checkpoint of {second}" in kernel.said
    kernel.run("%log")
    assert "on its way" not in kernel.said
    assert f"cells {put_off - 1} to {put_off}" in kernel.said


# How many bytes of arrays each capture has brought.
BROUGHT = """\
exec('''
import IPython
history = IPython.get_ipython().holdfast._notebook.history
history.brought = []
write = history._write
def counting(captured, *args, **options):
    memory = captured.memory.values()
    history.brought.append(sum(size for each in memory for _, size, _ in each.stretches))
    return write(captured, *args, **options)
history._write = counting
''', {})
"""
LAST = "get_ipython().holdfast._notebook.history.brought[-1]"


def test_of_large_arrays_only_what_changed_is_looked_at(
    start: Start, store: Callable[[], Store], tmp_path: Path
) -> None:
    try:
        Pagemap().close()
        nothing, little = 0, 2 * PAGE
    except OSError:  # this system does not tell what was written to: all of it is brought
        nothing = little = 32_000_000
    kernel = start()
    kernel.run(LOAD)
    kernel.run_silently(BROUGHT)
    kernel.run("import numpy as np\nlarge = np.arange(4_000_000.0)")
    kernel.run("%checkpoint whole")
    assert kernel.run("large.nbytes") == 32_000_000
    kernel.run("%checkpoint as it was")
    assert kernel.run(LAST) == nothing
    kernel.run("large[[5, 3_000_000]] = -1")
    kernel.run("%checkpoint two pages")
    kernel.run("%fork other")
    assert kernel.run(LAST) <= little
    kernel.run("large[7] = -2")
    kernel.run("%rollback")  # to before this cell
    kernel.run("%checkpoint")
    assert kernel.run(LAST) <= little
    kernel.run("large[9] = -3")
    kernel.run("%restore ~1000", fails=True)
    with store().draft("session/odd") as draft:
        draft.put("bytes", b"something else")
        draft.commit()
    kernel.run("%holdfast odd", fails=True)
    durable(store(), "before another session")
    kernel.run("large[11] = -4")
    kernel.run("%holdfast second")  # whose first checkpoint has all of it
    kernel.run("large[13] = -5")
    kernel.run("%checkpoint")
    now = kernel.run("float(large.sum())")
    kernel.kill()

    look = "[float(large[at]) for at in (5, 7, 9, 11, 13, 3_000_000)]"
    for name, there in (
        ("analysis", [-1, 7, -3, -4, 13, -1]),
        ("second", [-1, 7, -3, -4, -5, -1]),
        ("other", [-1, 7, 9, 11, 13, -1]),
    ):
        kernel = start(HOLDFAST_SESSION=name)
        kernel.run(LOAD)
        assert kernel.run(look) == there
        assert name != "second" or kernel.run("float(large.sum())") == now
        kernel.run_silently(BROUGHT)
        kernel.run("large[15] = -6")
        kernel.run("%checkpoint")
        assert kernel.run(LAST) <= little  # also of what came back
        kernel.kill()
        kernel = start(HOLDFAST_SESSION=name)
        kernel.run(LOAD)
        assert kernel.run(f"{look} + [float(large[15])]") == [*there, -6]
        kernel.kill()


VSCODE = """\
__vsc_ipynb_file__ = "/data/rain.ipynb"
def _VSCODE_getVariable(what, is_debugging, *args):
    return what
"""


def test_a_kernel_of_vs_code(start: Start, store: Callable[[], Store]) -> None:
    """The editor runs code of its own beside the user's, which is nobody's work."""
    first = start(HOLDFAST_SESSION="")
    first.run_silently(VSCODE)
    first.run(LOAD)
    name = first.said.split(",")[0]
    assert re.fullmatch(r"session/rain-\w{6}", name)
    first.run("x = [1, 2]\ny = x")
    first.run("%checkpoint kept")
    first.run_silently("_VSCODE_getVariable('x', False)\nleft_over = 1")
    first.run("x.append(3)\nlen(y)")
    first.run("%checkpoint kept again")
    made = len(store().list(name))
    first.run_silently("len(x)")
    first.run("%whos")
    assert "VSC" not in first.said
    assert len(store().list(name)) == made
    first.kill()
    second = start(HOLDFAST_SESSION="")
    second.run_silently(VSCODE)
    second.run(LOAD)
    assert "x, y" in second.said
    assert second.run("x is y and y") == [1, 2, 3]


SLOW = """\
import os, time
class Slow:
    def __reduce__(self):
        open("busy", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.05)
        return (int, ())
slow = Slow()
"""


def test_a_copy_holds_no_address(start: Start, tmp_path: Path) -> None:
    """A kernel that is started again on the same ports finds them free, whatever is captured."""
    kernel = start()
    kernel.run(LOAD)
    kernel.run(SLOW)
    wait_for((tmp_path / "busy").exists)
    kernel.die()
    for port in kernel.ports:
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a kernel does
            free.bind(("127.0.0.1", port))
            free.listen()
            assert free.getsockname()[1] == port
    (tmp_path / "go").touch()


def test_the_commands(start: Start, store: Callable[[], Store]) -> None:
    kernel = start(HOLDFAST_WINDOW="0")
    kernel.run(LOAD)
    kernel.run("x = [1]")
    kernel.run("x.append(2); y = 'text'")
    kernel.run("%whos")
    assert "list" in kernel.said
    assert "2 items" in kernel.said
    assert "added" in kernel.said
    kernel.run("%whos str")  # by type, as IPython itself has it
    assert "y" in kernel.said
    assert "x " not in kernel.said
    kernel.run("%diff")
    assert "changed" in kernel.said
    kernel.run("%checkpoint before cleaning")
    assert "before cleaning" in kernel.said
    kernel.run("%fork other")
    kernel.run("x.clear()")
    kernel.run("%rollback")
    assert "now at" in kernel.said
    assert kernel.run("x") == [1, 2]
    kernel.run("%rollback ~1000", fails=True)
    assert "UsageError" in kernel.said
    kernel.run("%log")
    assert "before cleaning" in kernel.said
    assert "forked to session/other" in kernel.said
    first = store().list("session/analysis")[-1]
    kernel.run(f"%restore {first.short}")
    assert kernel.run("x, 'y' in globals()") == ([1], False)
    kernel.run("%holdfast")
    assert "session/analysis" in kernel.said

    # a second kernel is told who has it, and may go on elsewhere
    second = start()
    second.run(LOAD, fails=True)
    assert "session/analysis is in use by" in second.said
    kernel.run("%unload_ext holdfast")
    kernel.run("%whos")
    assert "Data/Info" in kernel.said  # IPython's own again
    second.run(LOAD)
    assert second.run("x") == [1]
    second.run("%holdfast other")
    assert second.run("x, y") == ([1, 2], "text")

    # a kernel with variables keeps them, and is told how to get the others
    kernel.run(LOAD)
    assert "variables of its own" in kernel.said
    kernel.run("x.append('later')")
    assert kernel.run("x") == [1, "later"]


def test_a_session_that_cannot_be_had_leaves_the_one_that_is_there(
    start: Start, store: Callable[[], Store]
) -> None:
    owner = start(HOLDFAST_SESSION="lab")
    owner.run(LOAD)
    owner.run("x = 'theirs'")
    owner.run("%checkpoint")
    kernel = start()
    kernel.run(LOAD)
    kernel.run("x = [1]")
    kernel.run("%holdfast bad name", fails=True)
    assert "bad subject name" in kernel.said
    assert "session/analysis goes on" in kernel.said
    kernel.run("%holdfast lab", fails=True)
    assert "session/lab is in use by" in kernel.said
    assert "session/analysis goes on" in kernel.said
    kernel.run("%holdfast analysis")
    assert "this is session/analysis" in kernel.said
    kernel.run("x.append(2)")
    durable(store(), f"cell {kernel.number}")  # cells still are
    kernel.run("%log")
    assert f"{kernel.number - 1}  " in kernel.said

    # one that is free, but is none
    with store().draft("session/odd") as draft:
        draft.put("bytes", b"something else")
        draft.commit()
    kernel.run("%holdfast odd", fails=True)
    assert "session/analysis goes on" in kernel.said
    assert kernel.run("x") == [1, 2]
    kernel.run("x.append(3)")
    durable(store(), f"cell {kernel.number}")
    owner.run("%unload_ext holdfast")
    kernel.run("%holdfast lab")
    assert kernel.run("x") == "theirs"
    kernel.run("%holdfast analysis")
    assert kernel.run("x") == [1, 2, 3]


def test_definitions_go_on_in_another_session(start: Start, store: Callable[[], Store]) -> None:
    kernel = start()
    kernel.run(LOAD)
    kernel.run("class Station:\n    def wet(self):\n        return 5\noslo = Station()")
    kernel.run("%holdfast what-if")
    kernel.run("def later():\n    return oslo.wet()")
    kernel.run("%checkpoint")
    opened = store()
    head = opened.head("session/what-if")
    assert head is not None
    report = read_report(opened, opened.show(head))
    assert report is not None
    tiers = {item.name: (item.outcome, item.tier) for item in report.items}
    assert tiers["Station"] == tiers["later"] == ("rebuilt", "source")
    kernel.kill()
    kernel = start(HOLDFAST_SESSION="what-if")
    kernel.run(LOAD)
    assert kernel.run("later(), type(oslo) is Station") == (5, True)
    source = kernel.run("import inspect; inspect.getsource(Station.wet)")
    assert source.startswith("    def wet(self):")


def test_a_transaction(start: Start, store: Callable[[], Store]) -> None:
    kernel = start()
    kernel.run(LOAD)
    kernel.run("rows = [1]\nimport asyncio")
    kernel.run("%%transaction\nrows.append(2)\nnew = 1\nraise ValueError('no')", fails=True)
    assert "rolled back" in kernel.said
    assert kernel.run("rows, 'new' in globals()") == ([1], False)
    kernel.run("%%transaction\nawait asyncio.sleep(0)\nrows.append(3)")
    assert kernel.run("rows") == [1, 3]
    kernel.run("%%transaction\nrows.append(", fails=True)  # not even Python
    assert kernel.run("rows") == [1, 3]
    reasons = [each.reason for each in store().list("session/analysis")]
    assert reasons.count("transaction") == 3


NO_ROOM = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))"
ROOM = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))"


def test_transaction_that_cannot_begin_is_not_run(start: Start) -> None:
    """IPython runs a cell whatever is raised before it; it must not run unprotected."""
    kernel = start()
    kernel.run(LOAD)
    kernel.run("rows = [1]")
    kernel.run(NO_ROOM)
    kernel.run("%%transaction\nrows.append(2)", fails=True)
    assert "not run: its transaction could not begin" in kernel.said
    kernel.run(ROOM)
    assert kernel.run("rows, __doc__") == (
        [1],
        "Automatically created module for IPython interactive environment",
    )
    kernel.run_silently("%%transaction\nrows.append(3)", fails=True)
    assert kernel.run("rows") == [1]
    kernel.run("%%transaction\nfrom __future__ import annotations\nrows.append(4)")
    assert kernel.run("rows") == [1, 4]


def test_cells_within_a_transaction_are_part_of_it(start: Start) -> None:
    kernel = start()
    kernel.run(LOAD)
    kernel.run("rows = [1]")
    inside = "get_ipython().run_cell('rows.append(3)'); get_ipython().run_cell('')"
    kernel.run(f"%%transaction\nrows.append(2)\n{inside}\nraise ValueError('no')", fails=True)
    assert "rolled back" in kernel.said
    assert kernel.run("rows") == [1]
    another = "get_ipython().run_cell('%%transaction\\nrows.append(5)').success"
    assert kernel.run(f"rows.append(4)\n{another}") is False
    assert "cannot begin inside of another cell" in kernel.said
    assert kernel.run("rows") == [1, 4]


def test_what_is_not_kept(start: Start, store: Callable[[], Store]) -> None:
    kernel = start()
    kernel.run(LOAD)
    kernel.run("password = 'correct horse'\npassword")
    kernel.run(
        "import threading\nheld, stop = threading.Lock(), threading.Event()\n"
        "def hold():\n    with held:\n        stop.wait()\n"
        "thread = threading.Thread(target=hold, daemon=True)\nthread.start()\n"
        "while not held.locked(): pass"
    )
    kernel.run("%%time\nclass Timed:\n    def f(self): return 5\ntimed = Timed()")
    kernel.run("%checkpoint")
    opened = store()
    head = opened.head("session/analysis")
    assert head is not None
    parts = opened.show(head).parts
    kept = b"".join(
        opened.read(head, part.name)
        if part.split != "structure"
        else repr(opened.value(head, part.name)).encode()
        for part in parts
    )
    assert b"correct horse" not in kept
    kernel.kill()
    kernel = start()
    kernel.run(LOAD)
    for name in ("password", "held", "thread"):
        assert f"{name} did not come back" in kernel.said, name
    assert kernel.run("timed.f(), type(timed) is Timed") == (5, True)


def test_secrets_of_a_notebook(start: Start, store: Callable[[], Store]) -> None:
    kernel = start()
    kernel.run(LOAD)
    kernel.run("%env HOLDFAST_KEEP_SECRETS=demo_password")
    kernel.run("password, demo_password, token = 'leak-1', 'kept-1', 'cat'")
    kernel.run("%%time\ndef connect():\n    api_key = 'leak-2'\n    return api_key")
    kernel.run("def login():\n    secret = 'leak-3'\n    return secret")
    kernel.run("%checkpoint")
    opened = store()
    head = opened.head("session/analysis")
    assert head is not None
    kept = b"".join(
        repr(opened.value(head, part.name)).encode()
        if part.split == "structure"
        else opened.read(head, part.name)
        for part in opened.show(head).parts
    )
    assert b"leak-" not in kept
    assert b"kept-1" in kept
    kernel.kill()
    kernel = start(HOLDFAST_SECRET_PASSWORD="p", HOLDFAST_SECRET_API_KEY="k")
    kernel.run(LOAD)
    assert kernel.run("password, demo_password, token, connect()") == ("p", "kept-1", "cat", "k")
    assert "HOLDFAST_SECRET_SECRET" in kernel.run(
        "try: login().upper()\nexcept RuntimeError as error: said = str(error)\nsaid"
    )


def test_what_was_changed_in_the_process(start: Start, store: Callable[[], Store]) -> None:
    kernel = start(HOLDFAST_WINDOW="0")
    kernel.run(LOAD)
    kernel.run("import os, sys, numpy as np\nos.mkdir('data')")
    kernel.run(
        "os.chdir('data')\nos.environ['REGION'] = 'north'\nsys.path.append('/srv/mine')\n"
        "np.set_printoptions(precision=2)"
    )
    asked = (
        "os.path.basename(os.getcwd()), os.environ.get('REGION'), '/srv/mine' in sys.path,"
        " np.get_printoptions()['precision']"
    )
    assert kernel.run(asked) == ("data", "north", True, 2)
    durable(store(), "cell 4")
    kernel.kill()
    kernel = start()
    kernel.run(LOAD)
    assert "did not come back" not in kernel.said
    assert kernel.run(asked) == ("data", "north", True, 2)
    kernel.run("os.chdir('..'); os.environ['REGION'] = 'south'")
    assert kernel.run(asked)[1] == "south"
    kernel.run("%rollback ~2")
    assert kernel.run(asked) == ("data", "north", True, 2)


def test_ipython_in_a_terminal(tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "holdfast")}

    def ipython(*lines: str) -> str:
        command = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner"]
        done = subprocess.run(
            command, input="\n".join([LOAD, *lines, ""]), env=environ, cwd=tmp_path,
            capture_output=True, text=True, timeout=DEADLINE,
        )  # fmt: skip
        return done.stdout + done.stderr

    assert "new" in ipython("x = [1, 2]", "f = lambda: sum(x)", "f()")  # kept when it ends
    said = ipython("f() * 10, Out[4]")
    assert "came back" in said
    assert "(30, 3)" in said


def test_the_name_of_a_session() -> None:
    folder = Path("/data")
    assert session_name({"HOLDFAST_SESSION": "mine"}, {}, folder) == "mine"
    lab = session_name({"JPY_SESSION_NAME": "/data/My Notes.ipynb"}, {}, folder)
    code = session_name({}, {"__vsc_ipynb_file__": "/data/My Notes.ipynb"}, folder)
    assert lab == code
    assert lab.startswith("My-Notes-")
    other = session_name({"JPY_SESSION_NAME": "/other/My Notes.ipynb"}, {}, folder)
    assert other != lab
    assert session_name({}, {}, folder).startswith("data-")
    assert session_name({}, {}, Path("/")).startswith("notebook-")


@pytest.mark.parametrize(
    "name",
    ["In", "Out", "_", "___", "_3", "_i3", "_ii", "_oh", "_dh", "__vsc_ipynb_file__", "_VSCODE_x"],
)
def test_names_of_the_shell(name: str) -> None:
    assert is_own(name, 1, {})


def test_names_of_the_user() -> None:
    hidden = {"exit": 1}
    assert is_own("exit", 1, hidden)
    assert not is_own("exit", "mine", hidden)
    assert not any(is_own(name, 1, hidden) for name in ("x", "_x", "__x__", "_i3x", "Inn"))


def test_the_first_line_of_a_transaction() -> None:
    marked = ["\n", "'a transaction of holdfast'\n", "x = 1\n"]
    assert _without_marker(["\n", "%%transaction\n", "x = 1\n"]) == marked
    assert _without_marker(["x = 1\n", "%%transaction\n"]) == ["x = 1\n", "%%transaction\n"]
    assert _without_marker(["%%transaction now\n"]) == ["%%transaction now\n"]


@pytest.mark.parametrize(
    ("cell", "only"),
    [("%log", True), (" %rollback ~2\n", True), ("%holdfast x", True), ("x = 1", False),
     ("%log\nx = 1", False), ("%time x", False), ("%fork", False)],
)  # fmt: skip
def test_cells_that_are_no_work(cell: str, only: bool) -> None:
    assert _only_magic(cell) is only
