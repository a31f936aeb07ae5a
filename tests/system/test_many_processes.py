"""Eight processes write, prune, verify and read one store, and some of them are killed."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.system import crowd

from holdfast.store.opening import open_store
from holdfast.store.retention import Last

ROLES = ("writer", "writer", "writer", "writer", "reader", "pruner", "pruner", "verifier")
GRACE = 60.0  # seconds after which somebody who should have ended is stuck


class Member:
    """One process of the crowd."""

    def __init__(self, role: str, number: int, store: str, notes: Path, seconds: float) -> None:
        self.role = role
        self.number = number
        self.killed = False
        self.said = notes / f"said-{number}-{time.monotonic_ns()}"
        with self.said.open("wb") as out:
            program = [sys.executable, "-m", "tests.system.crowd", role, store]
            repository = Path(__file__).resolve().parents[2]
            self.process = subprocess.Popen(
                [*program, str(number), str(seconds)], stdout=out, stderr=out, cwd=repository
            )

    def kill(self) -> None:
        self.killed = True
        self.process.kill()
        self.process.wait()

    def wait(self) -> list[str]:
        """What is wrong with how it ended."""
        try:
            status = self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            return [f"{self.role} {self.number} is stuck; it said {self.lines()[-3:]}"]
        if status == 0 or self.killed:
            return []
        return [f"{self.role} {self.number} ended with {status}:", *self.lines()[-25:]]

    def lines(self) -> list[str]:
        return self.said.read_text().splitlines()


def gather(store: str, notes: Path, seconds: float) -> None:
    """Let the crowd work; kill one now and then, and let another take its place."""
    chance = random.Random(1)
    deadline = time.monotonic() + seconds
    members = [Member(role, number, store, notes, seconds) for number, role in enumerate(ROLES)]
    working = list(members)
    while (left := deadline - time.monotonic()) > 2:
        time.sleep(chance.uniform(0.2, 0.8))
        # Mostly one that has done something: on a slow machine nobody would come to it otherwise.
        busy = [number for number, member in enumerate(working) if member.said.stat().st_size]
        chosen = busy if chance.random() < 0.8 else range(len(working))
        if not chosen:
            continue
        victim = chance.choice(chosen)
        if working[victim].process.poll() is None:
            working[victim].kill()
            working[victim] = Member(ROLES[victim], victim, store, notes, left)
            members.append(working[victim])
    wrong = [line for member in members for line in member.wait()]
    assert not wrong, "\n".join(wrong)
    words = [line.split() for member in members for line in member.lines()]
    kept = {line[1] for line in words if line[0] == "kept"}
    done = ("saved", "pruned", "read", "verified")
    counts = {word: sum(line[0] == word for line in words) for word in done}
    assert kept, words
    assert min(counts.values()) > 0, f"some did nothing at all: {counts}"
    assert not [line for line in words if line[0] == "conflict"], "somebody was kept waiting"
    check(store, kept, acknowledged(members))


def acknowledged(members: list[Member]) -> dict[str, dict[str, str]]:
    """The checkpoints of each subject whose writer said that they are saved, in that order, and
    what they were made of. Whoever took the place of somebody wrote on."""
    found: dict[str, dict[str, str]] = {}
    for member in members:
        for line in member.lines():
            match line.split():
                case ["saved" | "kept", checkpoint, *recipe]:
                    subject = found.setdefault(f"state/crowd-{member.number}", {})
                    subject[checkpoint] = " ".join(recipe)
    return found


def check(place: str, kept: set[str], said: dict[str, dict[str, str]]) -> None:
    """Nothing is lost, and nothing is left behind."""
    with crowd.open_place(place) as store:
        with store.draft("state/last", reason="seed0 1000 1") as draft:
            for part in ("pages", "segment", "content"):
                draft.put(part, crowd.content("seed0 1000 1"), split=part)  # type: ignore[arg-type]
            draft.put("value", {"recipe": "seed0 1000 1"}, split="structure")
            draft.commit()
        assert store.verify(deep=True).problems == ()
        found = {one.id: one for one in store.list()}
        assert kept <= found.keys(), f"{len(kept - found.keys())} of {len(kept)} are lost"
        for one in found.values():
            crowd.look(store, one)
        for subject, promised in said.items():
            last = [*promised][-1]  # which retention keeps
            assert last in found, f"the last of {subject} is lost"
            # Looked at above: each has the content that its own reason stands for.
            assert all(found[one].reason == promised[one] for one in promised.keys() & found.keys())
            head = store.head(subject)
            assert head is not None
            # Or a later one, whose writer was killed before it could say so.
            later = head.id not in promised and head.sequence > found[last].sequence
            assert head.id == last or later, f"the head of {subject} is an older one"
        store.prune(Last(1000))
        assert store.verify(deep=True).problems == ()


@pytest.mark.timeout(180)
def test_a_crowd_loses_nothing(tmp_path: Path) -> None:
    gather(str(tmp_path / "store"), tmp_path, 8)
    assert list((tmp_path / "store/holds").iterdir()) == []


@pytest.mark.timeout(240)
def test_a_crowd_loses_nothing_in_an_object_store(on_s3: str, tmp_path: Path) -> None:
    gather(on_s3, tmp_path, 8)


def is_locked(store: Path) -> bool:
    """Whether somebody sits between locking the log and unlocking it."""
    fd = os.open(store / "log/lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def stop(process: subprocess.Popen[bytes]) -> bool:
    """Stop a process; False when it ended before that."""
    process.send_signal(signal.SIGSTOP)
    while process.poll() is None:
        if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return True
        time.sleep(0.001)
    return False


def test_a_stopped_process_blocks_nobody(tmp_path: Path) -> None:
    """Unless it was stopped while it appends; then it is named, as test_races shows."""
    place = tmp_path / "store"
    stopped = 0
    with open_store(place) as store:
        member = Member("writer", 0, str(place), tmp_path, 8)
        try:
            while stop(member.process):
                if not is_locked(place):
                    crowd.write(store, 1, random.Random(stopped))
                    store.prune(Last(2))
                    assert store.verify().problems == ()
                    stopped += 1
                member.process.send_signal(signal.SIGCONT)
                time.sleep(0.4)
        finally:
            member.process.send_signal(signal.SIGCONT)
        assert member.wait() == []
        assert stopped > 2
        assert store.verify(deep=True).problems == ()


@pytest.mark.soak
def test_a_crowd_loses_nothing_in_a_long_time(tmp_path: Path) -> None:
    gather(str(tmp_path / "store"), tmp_path, 70)


@pytest.mark.soak
def test_a_crowd_loses_nothing_in_an_object_store_in_a_long_time(
    on_s3: str, tmp_path: Path
) -> None:
    gather(on_s3, tmp_path, 70)
