"""The interpreter that waits: what executions of Python begin as copies of.

It runs inside as the user whose programs it becomes, in whatever Python the root has, and brings
nothing along that a program would find: the agent begins `PYTHON -c` with a line that runs this
text in a dictionary of its own. On descriptor 3 it is told what to run (spec/sandbox-v1.md, section
2). It does not wait where a copy would differ from an interpreter that has just begun.
"""

import os
import sys
from _signal import SIG_DFL, SIGCHLD, set_wakeup_fd, signal

ORDERS = 3
LARGEST = 1 << 16  # bytes of an order
COMPARED = ((3, 11), (3, 12), (3, 13))  # how `-c` runs code differs a little between releases
READABLE = 1  # POLLIN


def fit():
    """Whether a copy of this interpreter is one: others may know more, or have state that must not
    be there twice, or threads that a copy has not."""
    lines = sys.modules.get("linecache")
    return (
        sys.version_info[:2] in COMPARED
        and not hasattr(lines, "_interactive_cache")  # a newer way to remember code
        and "numpy" not in sys.modules  # its generators have begun
        and len(os.listdir("/proc/self/task")) == 1
    )


def site_places():
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


def changeable(path, known):
    """Whether programs here may make something else of a path, which may lead to nothing yet."""
    if path not in known:
        above = os.path.dirname(path)
        known[path] = bool(
            os.access(path, os.W_OK)
            or (os.path.exists(path) and os.stat(path).st_uid == os.geteuid())
            or (above != path and changeable(above, known))
        )
    return known[path]


def look(places):
    """How places are now."""
    return [state(each) for each in places]


def state(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def wait(link, poll, space):
    """Tell of copies that ended, and make those that are ordered; returns in each of them, with its
    code and what is other in its environment."""
    known = {}
    places = sorted({each for each in site_places() if changeable(each, known)})
    begun = look(places)
    room = memoryview(bytearray(LARGEST))
    wake, wake_up = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_up, False)
    signal(SIGCHLD, lambda *_: None)
    set_wakeup_fd(wake_up, warn_on_full_buffer=False)
    ready = poll()
    ready.register(ORDERS, READABLE)
    ready.register(wake, READABLE)
    link.send(b"ready")
    while True:
        for fd, _ in ready.poll():
            if fd == wake:
                os.read(wake, 4096)
                reap(link)
                continue
            count, control, *_ = link.recvmsg_into([room], space)
            if not count:
                os._exit(0)  # the agent has no need of this one any more
            text, *words = bytes(room[:count]).split(b"\0")
            given = control[0][2]
            fds = [
                int.from_bytes(given[at : at + 4], sys.byteorder) for at in range(0, len(given), 4)
            ]
            if look(places) != begun:
                link.send(b"stale")
                os._exit(0)  # what still runs is the agent's then
            try:
                os.chdir(words[0])
                copied = os.fork() == 0
            except OSError:
                link.send(b"cannot")
                copied = False
            if copied:
                enter(link, fds)
                for each in (wake, wake_up):
                    os.close(each)
                return text.decode(), words[1:]
            for each in fds:
                os.close(each)


def reap(link):
    """Tell of the copies that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        link.send(b"ended %d %d" % (pid, status))


def enter(link, fds):
    """In the copy: be a program like others. Its last descriptor holds the ticket; an agent that
    did not want to wait any longer has taken that back, and runs the code in another way."""
    set_wakeup_fd(-1)
    signal(SIGCHLD, SIG_DFL)
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


def run(text, changes):
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
    except SystemExit:
        raise
    except BaseException as error:
        hide(error)
        raise


def hide(error):
    """Leave the frames of this text out of what is told of an exception."""
    hook, begun = getattr(sys, "excepthook", sys.__excepthook__), error.__traceback__.tb_next

    def show(kind, value, _):
        sys.excepthook = hook
        sys.last_traceback = value.__traceback__ = begun
        hook(kind, value, begun)

    sys.excepthook = show


def main():
    """Wait, and be what is asked for."""
    before = set(sys.modules)
    from _socket import CMSG_SPACE, socket
    from select import poll

    for name in set(sys.modules) - before:
        del sys.modules[name]
    if not fit():
        os._exit(0)
    return wait(socket(fileno=ORDERS), poll, CMSG_SPACE(4 * 4))


run(*main())
