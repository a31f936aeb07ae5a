"""What Holdfast keeps is closed to other users: from the moment in which it is made, and for
stores of a group on purpose."""

from __future__ import annotations

import logging
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.errors import BadInput, Conflict
from holdfast.store import open_store
from holdfast.testing.servers import Server

# Makes nearly everything that there is: stores, packs, snapshots, key slots, leases, keys, caches,
# copies, prints, archives, state files, the registry, notes.
WORK = """
import os, sys
from pathlib import Path
os.umask(int(sys.argv[2], 8))
top = Path(sys.argv[1])
os.environ["HOLDFAST_HOME"] = str(top / "home" / "of" / "mine")
from holdfast.state import StateManager
from holdfast.drill import noted
from holdfast.store import keys, open_store, retention, slots
from holdfast.view import verified
secret = slots.new_key_file(top / "secret.key")
for url, encrypt in ((top / "made" / "store", False), (top / "sealed", True), *sys.argv[3:]):
    with open_store(url, encrypt=encrypt, secret=secret if encrypt else None) as store:
        for i in range(40):
            with store.draft("state/x") as draft:
                draft.put("small", os.urandom(200_000))
                draft.put("value", {"rows": ["x" * 100_000]}, "structure")
                draft.commit()
        store.value("state/x", "value")
        for i in range(2):
            with store.draft("sandbox/y") as draft:
                draft.put("pages", bytes(6_000_000) + os.urandom(3_000_000), "pages")
                draft.commit()
        store.read("sandbox/y", "pages")
        store.lease("state/x").release()
        store.prune(retention.Last(1))
        store.export("state/x", top / f"archive-{len(os.listdir(top))}")
        verified.note(store.url, store.verify())
        noted.note(store.url, [])
keys.import_key(keys.Key.generate())
manager = StateManager("agent", directory=top / "states" / "mine")
manager.set_state("a", 1)
manager.checkpoint("one")
manager.save_state()
"""

# Calls that make something: `openat(AT_FDCWD, "path", O_RDWR|O_CREAT|..., 0600) = 3`.
CALL = re.compile(r'(open|openat|creat|mkdir|mkdirat|mknod|mknodat)\(.*?"([^"]+)"(.*)\) = \d')
WIDENING = re.compile(r"(chmod|fchmod|fchmodat)\(.*?, 0?([0-7]+)\) = 0")


@pytest.mark.parametrize("umask", ["000", "022", "077"])
def test_nothing_is_ever_open_to_others(tmp_path: Path, umask: str) -> None:
    calls = traced(tmp_path, umask)
    made = [call for line in calls if (call := CALL.search(line)) and str(tmp_path) in call[2]]
    folders = [call for call in made if call[1].startswith("mkdir")]
    files = [call for call in made if "O_CREAT" in call[3] or call[1] == "creat"]
    assert len(folders) > 15
    assert len(files) > 30
    for call in (*folders, *files):
        mode = int(call[3].rpartition(", ")[2], 8)
        assert not mode & 0o077, call[0]
    assert not [
        line for line in calls if (found := WIDENING.search(line)) and int(found[2], 8) & 0o77
    ]
    wide, narrow = modes_below(tmp_path)
    assert (wide, narrow) == ([], [])


@pytest.mark.parametrize("umask", ["000", "077"])
def test_caches_of_buckets_are_closed_too(
    tmp_path: Path, s3: Server, on_s3: str, umask: str
) -> None:
    calls = traced(tmp_path, umask, on_s3)
    assert list(tmp_path.glob("home/of/mine/cache/*/packs/*"))
    assert not [
        call[0]
        for line in calls
        if (call := CALL.search(line))
        and str(tmp_path) in call[2]
        and (call[1].startswith("mkdir") or "O_CREAT" in call[3])
        and int(call[3].rpartition(", ")[2], 8) & 0o077
    ]
    assert modes_below(tmp_path) == ([], [])


def traced(top: Path, umask: str, *more: str) -> list[str]:
    """The system calls of a process that makes nearly everything below a folder."""
    log = top.parent / f"{top.name}.strace"
    wanted = "open,openat,creat,mkdir,mkdirat,mknod,mknodat,chmod,fchmod,fchmodat"
    script = WORK.replace("*sys.argv[3:]", "*((url, False) for url in sys.argv[3:])")
    command = ["strace", "-f", "-s", "512", "-o", log, "-e", f"trace={wanted}", sys.executable]
    command += ["-c", script, str(top), umask, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines()


def modes_below(top: Path) -> tuple[list[str], list[str]]:
    """What is open to others, and what its user cannot use."""
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in top.rglob("*")}
    assert len(found) > 30
    wide = [f"{path} {mode:o}" for path, mode in found.items() if mode & 0o077]
    needed = {path: 0o700 if path.is_dir() else 0o600 for path in found}
    narrow = [f"{path} {mode:o}" for path, mode in found.items() if mode & 0o700 != needed[path]]
    return wide, narrow


# -- what is open already


@pytest.fixture
def reachable(tmp_path: Path) -> Iterator[Path]:
    """A folder that all may enter, as pytest's are not."""
    folder = Path("/var/tmp") / f"holdfast-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


def test_opening_a_wide_store_says_so(reachable: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = reachable / "store"
    open_store(place).close()
    with caplog.at_level(logging.WARNING, "holdfast.store"):
        open_store(place).close()
        assert caplog.messages == []
        subprocess.run(["chmod", "-R", "a+rX", place], check=True)
        open_store(place).close()
        open_store(place).close()
    (said,) = caplog.messages
    assert said == (
        f"every user of this machine can open {place} (mode 0755);"
        f" `chmod -R go-rwx {place}` mends it"
    )
    subprocess.run(["chmod", "-R", "go-rwx", place], check=True)
    with open_store(place) as store, store.draft("state/x") as draft:
        draft.put("part", b"x")
        draft.commit()


def test_a_wide_key_is_named(
    reachable: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = reachable / "signing.key"
    key.write_text("ab" * 32)
    key.chmod(0o644)
    with caplog.at_level(logging.WARNING, "holdfast.store"):
        environ = {**os.environ, "HOLDFAST_KEY_FILE": str(key)}
        open_store(tmp_path / "store", environ=environ).close()
    (said,) = caplog.messages
    assert f"`chmod go-rwx {key}`" in said


# -- for a group, on purpose


AS_MEMBER = """
import os, sys
import numpy
from holdfast.store import open_store
from holdfast.store.keys import Key, Keyring
os.setgroups([]); os.setresgid(34567, 34567, 34567); os.setresuid(int(sys.argv[2]), -1, -1)
os.setresuid(int(sys.argv[2]), int(sys.argv[2]), int(sys.argv[2]))
os.umask(0o077)
with open_store(sys.argv[1], keyring=Keyring(Key(bytes(32)))) as store:
    with store.draft("state/x") as draft:
        draft.put("small", sys.argv[2].encode())
        draft.put("large", os.urandom(2_000_000))
        draft.commit()
    with store.lease("state/x"):
        pass
    print(len(store.list()), store.read("state/x", "small"), store.verify(deep=True).ok)
    store.prune()
"""


def test_a_shared_store_is_its_groups(reachable: Path) -> None:
    place = reachable / "team"
    place.mkdir()
    os.chown(place, -1, 34567)
    before = os.umask(0o077)
    try:
        open_store(place, shared=True).close()
    finally:
        os.umask(before)
    for number, user in enumerate((40001, 40002, 40001), 1):
        done = subprocess.run(
            [sys.executable, "-c", AS_MEMBER, place, str(user)], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{number} b'{user}' True\n"
    for path in (place, *place.rglob("*")):
        about = path.stat()
        assert about.st_gid == 34567, path
        assert stat.S_IMODE(about.st_mode) == (0o2770 if path.is_dir() else 0o660), path


def test_a_private_store_is_not_shared_later(tmp_path: Path) -> None:
    place = tmp_path / "store"
    open_store(place).close()
    with pytest.raises(Conflict) as caught:
        open_store(place, shared=True)
    group = os.stat(place).st_gid
    mends = (caught.value.hint or "").replace("GROUP", str(group))
    assert subprocess.run(mends, shell=True, check=True).returncode == 0
    open_store(place, shared=True).close()


def test_only_directories_are_shared(on_s3: str) -> None:
    for url in ("memory://", on_s3):
        with pytest.raises(BadInput, match="directory"):
            open_store(url, shared=True)
