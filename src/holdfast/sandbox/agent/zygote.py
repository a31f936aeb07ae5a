"""The interpreter that waits: what executions of Python begin as copies of.

It runs inside as the user whose programs it becomes, in whatever Python the root has, and brings
nothing along that a program would find: the agent begins `PYTHON -c` with a line that runs this
text in a dictionary of its own. On descriptor 3 it is told what to run (spec/sandbox-v1.md, section
2). It does not wait where a copy would differ from an interpreter that has just begun.
"""

# ruff: noqa: E402
import sys

began_with = set(sys.modules)
import os
from _io import BufferedRandom, BufferedWriter, TextIOWrapper
from _signal import SIG_DFL, SIGCHLD, set_wakeup_fd, signal  # type: ignore[import-not-found]
from _socket import CMSG_SPACE, socket
from gc import collect, freeze, get_objects
from select import POLLIN, poll

for name in set(sys.modules) - began_with:
    del sys.modules[name]  # a program imports it for itself

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import NoReturn

ORDERS = 3
LARGEST = 1 << 16  # bytes of an order
COMPARED = ((3, 11), (3, 12), (3, 13))  # how `-c` runs code differs a little between releases
READY = 2  # copies that wait: one is made while the other runs, for those that follow closely
TAKEN = b"\0"  # no signal's number: a copy that has something to run tells its own behind it
BUSY_MILLISECONDS = 200  # that a copy may run without being disturbed by the making of another
LATER = "_holdfast"  # the name below which a module has what ends a copy

ends: list[int] = []  # the exit code of this copy, once it is known


def fit() -> bool:
    """Whether a copy of this interpreter is one: others may know more, or have state that must not
    be there twice, or threads that a copy has not."""
    lines = sys.modules.get("linecache")
    return (
        sys.version_info[:2] in COMPARED
        and not hasattr(lines, "_interactive_cache")  # a newer way to remember code
        and "numpy" not in sys.modules  # its generators have begun
        and len(os.listdir("/proc/self/task")) == 1
    )


# -- what it began with


def beginnings() -> "Iterator[str]":
    """Whatever the beginning of this interpreter depended on, there or not."""
    above = os.path.dirname(sys.executable)
    yield from (os.path.join(each, "pyvenv.cfg") for each in (above, os.path.dirname(above)))
    folders = [each for each in sys.path if each]
    site = sys.modules.get("site")
    if site is not None:
        folders += site.getsitepackages()
        if site.ENABLE_USER_SITE:
            folders.append(site.getusersitepackages())
    for folder in folders:
        yield folder
        if os.path.isdir(folder):
            names = os.listdir(folder)
            yield from (os.path.join(folder, each) for each in names if each.endswith(".pth"))
    for module in list(sys.modules.values()):
        if file := getattr(module, "__file__", None):
            yield file


def changeable(path: str, known: dict[str, bool]) -> bool:
    """Whether programs here may make something else of a path, which may lead to nothing yet."""
    if path not in known:
        above = os.path.dirname(path)
        known[path] = (
            os.access(path, os.W_OK)
            or (os.path.exists(path) and os.stat(path).st_uid == os.geteuid())
            or (above != path and changeable(above, known))
        )
    return known[path]


def look(places: list[str]) -> list[tuple[int, ...]]:
    """How places are now."""
    found: list[tuple[int, ...]] = []
    for place in places:
        try:
            seen = os.stat(place)
        except OSError:
            found.append((0,))
        else:
            found.append((seen.st_ino, seen.st_mtime_ns, seen.st_size))
    return found


# -- waiting


def wait(link: socket, space: int) -> tuple[str, list[bytes]]:
    """Have copies ready, and tell of those that ended. Returns in each that has something to run,
    with its code and what is other in its environment."""
    known: dict[str, bool] = {}
    places = sorted({each for each in beginnings() if changeable(each, known)})
    begun = look(places)
    wake, wake_up = os.pipe()
    os.set_blocking(wake_up, False)
    signal(SIGCHLD, lambda *_: None)
    set_wakeup_fd(wake_up, warn_on_full_buffer=False)
    news, news_or_orders = poll(), poll()
    news.register(wake, POLLIN)
    news_or_orders.register(wake, POLLIN)
    news_or_orders.register(ORDERS, POLLIN)
    nobody_asks = poll()
    nobody_asks.register(ORDERS, 0)  # that the other end is closed is told in any case
    link.send(b"ready")
    waiting: set[int] = set()
    heard: set[int] = set()
    asked = due = False  # whether there was any order, and whether a copy may be made now
    while True:
        if due and len(waiting) < READY:
            pid = os.fork()
            if not pid:
                break
            waiting.add(pid)
        # One more is made when something has ended, when somebody waits for it, or after a while:
        # beside what has just begun to run, both would take twice as long in gVisor.
        due = due and len(waiting) < READY and ORDERS not in heard
        patience = 0 if due else BUSY_MILLISECONDS if asked and not waiting else None
        heard = {fd for fd, _ in (news if waiting else news_or_orders).poll(patience)}
        asked = asked or ORDERS in heard
        due = due or not heard or ORDERS in heard
        if wake in heard:
            for pid in taken(os.read(wake, 4096)):
                waiting.discard(pid)
                due = False
            for pid, status in ended():
                due = True
                if pid in waiting:
                    waiting.remove(pid)  # nobody knows of it
                    if nobody_asks.poll(0):
                        os._exit(0)  # as it did, and any other would
                else:
                    link.send(b"ended %d %d" % (pid, status))
    set_wakeup_fd(-1)
    signal(SIGCHLD, SIG_DFL)
    os.close(wake)
    text, folder, changes, fds = order(link, space)
    if look(places) != begun:
        refuse(link, b"stale")
    try:
        os.chdir(folder)
    except OSError:
        refuse(link, b"cannot")
    os.write(wake_up, TAKEN + os.getpid().to_bytes(4, "big"))  # from here on its end is told of
    os.close(wake_up)
    enter(link, fds)
    return text, changes


def taken(said: bytes) -> "Iterator[int]":
    """The copies that have something to run, among the signals of those that ended."""
    at = 0
    while at < len(said):
        if said[at : at + 1] == TAKEN:
            yield int.from_bytes(said[at + 1 : at + 5], "big")
            at += 4
        at += 1


def ended() -> "Iterator[tuple[int, int]]":
    """Children that are no more, and how they ended. Each is collected when that has been told: of
    one that is not, whoever ends us in between hears by itself."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None:
            return
        if found.si_code == os.CLD_EXITED:
            yield found.si_pid, found.si_status << 8
        elif found.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            yield found.si_pid, found.si_status
        os.waitpid(found.si_pid, os.WNOHANG)  # or it asked us to trace it, and stands still


def order(link: socket, space: int) -> tuple[str, bytes, list[bytes], list[int]]:
    """Code, folder, what is other in the environment, and descriptors."""
    room = bytearray(LARGEST)
    count, control, *_ = link.recvmsg_into([room], space)
    if not count:
        os._exit(0)  # the agent has no need of it any more
    text, folder, *changes = bytes(room[:count]).split(b"\0")
    given = control[0][2]
    fds = [int.from_bytes(given[at : at + 4], sys.byteorder) for at in range(0, len(given), 4)]
    return text.decode(), folder, changes, fds


def refuse(link: socket, word: bytes) -> "NoReturn":
    link.send(word)
    os._exit(0)


def enter(link: socket, fds: list[int]) -> None:
    """Be a program like others. The last of its descriptors holds the ticket; an agent that did not
    want to wait any longer has taken that back, and runs the code in another way."""
    os.setsid()
    *streams, ticket = fds
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
    if not os.read(ticket, 1):
        os._exit(127)
    link.send(b"began %d" % os.getpid())
    link.close()
    for fd in fds:
        os.close(fd)


# -- running


def run(text: str, changes: list[bytes]) -> None:
    """As `-c` would: with the same names, and what it tells of an exception is the same."""
    for change in changes:
        name, given, value = change.partition(b"=")
        if given:
            os.environb[name] = value
        else:
            os.environb.pop(name, None)
    sys.orig_argv[-1] = text
    lines = sys.modules.get("linecache") if sys.version_info >= (3, 13) else None
    try:
        if lines is not None:
            lines.cache.pop("<string>", None)
        code = compile(text, "<string>", "exec", dont_inherit=True)
        if lines is not None:
            lines._register_code("<string>", text, "<string>")
        exec(code, vars(sys.modules["__main__"]))
    except SystemExit as leaving:
        note(leaving.code)
        raise
    except KeyboardInterrupt as error:
        hide(error)  # it ends by the signal
        raise
    except BaseException as error:
        hide(error)
        raise
    else:
        note(0)


def hide(error: BaseException) -> None:
    """Leave the frames of this text out of what is told of an exception, and of one in the telling,
    which the interpreter tells in the same words."""
    hook = getattr(sys, "excepthook", None)
    begun = error.__traceback__ and error.__traceback__.tb_next
    tell = sys.__excepthook__

    def show(kind: type[BaseException], value: BaseException, _: object) -> None:
        sys.last_traceback = value.__traceback__ = begun
        if hook is None:
            del sys.excepthook
            say("sys.excepthook is missing\n")
            tell(kind, value, begun)
        else:
            sys.excepthook = hook
            try:
                hook(kind, value, begun)
            except SystemExit:
                raise  # it decides how this ends
            except BaseException as second:  # noqa: BLE001  as the interpreter does
                further = second.__traceback__ and second.__traceback__.tb_next
                second.__traceback__ = further
                say("Error in sys.excepthook:\n")
                tell(type(second), second, further)
                say("\nOriginal exception was:\n")
                tell(kind, value, begun)
        if not isinstance(value, KeyboardInterrupt):
            note(1)

    sys.excepthook = show


def say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)


# -- the end


def note(code: object) -> None:
    """How it will end. Where text is written to something else, that may decide it still."""
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        return
    if code is None:
        code = 0
    number = code if isinstance(code, int) else 1
    if -(1 << 31) <= number < 1 << 31:
        ends.append(number & 0xFF)


class End:
    """Ends a copy when the interpreter, at its own end, has taken down all that came after the
    beginning, and is about to take down what was there before: most of what it has, page by page a
    copy that nobody needs. Whatever keeps this from being called only makes the end slower."""

    def __init__(self, module: "ModuleType") -> None:
        self._module = module  # it stays until modules are cleared, the last that came first
        self._files = (TextIOWrapper, BufferedRandom, BufferedWriter)
        self._objects = get_objects
        self._exit = os._exit
        self._ends = ends
        self._streams = [each for each in (sys.__stdout__, sys.__stderr__) if each is not None]

    def __del__(self) -> None:
        if not self._ends:
            return
        for stream in self._streams:
            try:
                if not stream.closed:
                    stream.flush()
            except (OSError, ValueError):
                return  # the interpreter has an exit code for that
        for file in [each for each in self._objects() if isinstance(each, self._files)]:
            try:
                file.flush()
            except (OSError, ValueError):
                continue  # it is closed, or cannot be written to any more
        self._exit(self._ends[0])


def freeze_beginnings() -> None:
    """What is there now is no garbage: a copy that looked through it would make it its own. Only
    what code is run in is a copy's to take down."""
    last = [each for each in sys.modules.values() if isinstance(each, type(sys))][-1]
    vars(last)[LATER] = End(last)
    collect()
    freeze()
    main = type(sys)("__main__")
    vars(main).update(vars(sys.modules["__main__"]))
    vars(main).pop("__warningregistry__", None)  # of the line that began this text
    sys.modules["__main__"] = main


def begin() -> tuple[str, list[bytes]]:
    """Wait; returns in a copy."""
    if not fit():
        os._exit(0)
    freeze_beginnings()
    return wait(socket(fileno=ORDERS), CMSG_SPACE(4 * 4))


run(*begin())
