"""Every command that works on a store works on every kind of store, however it is named."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import HOLDFAST, Run

from holdfast.cli.main import VERBS
from holdfast.store import open_store
from holdfast.store.slots import new_key_file

# What takes no store, or keeps its own: containers are kept where the policy of the node says.
WITHOUT = {"doctor", "completion", "help", "container", "template"}
WORD = "quetzalcoatl"


@pytest.fixture(params=["plain", "encrypted"])
def place(
    request: pytest.FixtureRequest, on_s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The address of a store that is not there yet, and its secret in the environment."""
    if request.param == "encrypted":
        new_key_file(tmp_path / "key")
        monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEY_FILE", str(tmp_path / "key"))
    return on_s3


class Walk:
    """Calls commands on a store, and remembers which."""

    def __init__(self, run: Run, place: str) -> None:
        self._run = run
        self._place = place
        self.verbs: set[str] = set()

    def __call__(self, verb: str, *arguments: str, bare: bool = False) -> str:
        self.verbs.add(verb)
        store = () if bare else ("--store", self._place)
        done = self._run(verb, *arguments, *store)
        assert done.code == 0, (verb, arguments, done.err)
        return str(done.out)


@pytest.fixture
def walk(run: Run, place: str) -> Walk:
    return Walk(run, place)


@pytest.mark.timeout(300)
def test_every_command(
    walk: Walk, run: Run, program: Run, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypted = "HOLDFAST_ENCRYPTION_KEY_FILE" in os.environ
    walk("init", place, *(["--encrypt"] if encrypted else []), bare=True)
    with open_store(place, create=False) as store:
        assert store.encrypted == encrypted
        for number in range(4):
            with store.draft("state/x", reason=WORD, tags={"step": str(number)}) as draft:
                draft.put("large", hashlib.shake_256(bytes([number])).digest(1_200_000), "segment")
                draft.put("value", {WORD: number}, split="structure")
                draft.commit()
    assert walk("list").count(WORD) == 4
    assert "state/x" in walk("subjects")
    assert f"{WORD}" in walk("show", "state/x", "--part", "value")
    walk("log", "state/x")
    walk("diff", "state/x~1", "state/x")
    walk("stats")
    walk("tag", "state/x~1", "good")
    walk("pin", "good")
    walk("restore", "good")
    walk("undo", "state/x")
    walk("rollback", "state/x")
    walk("fork", "state/x", "other")
    walk("unpin", "good")
    walk("bundle", "make", "both", "state/x", "state/other")
    assert "state/other" in walk("bundle", "show", "bundle/both")
    walk("verify", "--deep")
    # Out as a file, and back in.
    archive = str(tmp_path / "x.holdfast")
    walk("export", "state/x", archive, "--ancestors")
    walk("delete", "state/other")
    walk("prune", "--keep-last", "1")
    assert walk("import", archive).count("state/x") >= 3
    # To another store, and from there to here.
    aside = str(tmp_path / "aside")
    plaintext = ["--plaintext"] if encrypted else []
    walk("copy", place, aside, *plaintext, bare=True)
    walk("copy", aside, place, bare=True)
    if encrypted:
        assert "a key file" in walk("key", "slots")
    else:
        walk("key", "show")
    # Sessions.
    script = tmp_path / "script.py"
    script.write_text(f"# %%\nword = '{WORD}'\n# %%\nprint(word)\n")
    monkeypatch.setenv("HOLDFAST_STORE", place)
    for verb, arguments, stdin in (
        ("run", ["scripted", str(script)], ""),
        ("repl", ["typed"], f"word = '{WORD}'\nprint(word)\n"),
    ):
        walk.verbs.add(verb)
        done = program(verb, *arguments, stdin=stdin)
        assert done.code == 0, done.err
        assert WORD in done.out
        again = program("show", f"session/{arguments[0]}")
        assert again.code == 0, again.err
    # There is no owner to reach; the store has to be found all the same.
    walk.verbs.add("checkpoint")
    assert run("checkpoint", "session/scripted").code in (3, 5)
    assert place in walk("config", bare=True)
    walk.verbs.add("serve")
    assert place in served(tmp_path)
    walk.verbs.add("mcp")
    assert program("mcp", stdin="").code == 0
    walk("verify", "--deep", bare=True)
    left = VERBS.keys() - WITHOUT - walk.verbs
    assert not left, f"a new command belongs into this walk: {left}"


def served(folder: Path) -> str:
    """What a server says when it starts."""
    process = subprocess.Popen(
        [HOLDFAST, "serve", "--port", "0", "--engine", "process"],
        env={**os.environ, "XDG_CONFIG_HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    return "".join(lines)
