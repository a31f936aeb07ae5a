"""Each verb: what it shows, what it does, and what it says when it cannot."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from tests.cli.conftest import Run, fill

from holdfast.state import StateManager
from holdfast.store import open_store


def heads() -> dict[str, str]:
    with open_store() as store:
        return {str(each.subject): each.head.id for each in store.subjects() if each.head}


# list


def test_list_shows_the_newest_first(run: Run, ids: list[str]) -> None:
    found = run("list", "--json").json["checkpoints"]
    assert [each["id"] for each in found] == ids[::-1]
    lines = run("list").out.splitlines()
    assert lines[0].split() == ["ID", "SUBJECT", "REASON", "STAGE", "WHEN", "SIZE", "NOTES"]
    assert "step 2" in lines[1]
    assert lines[1].endswith("head")
    assert "head" not in lines[2]


def test_list_can_be_narrowed(run: Run, ids: list[str]) -> None:
    with open_store() as store:
        fill(store, "session/other", 1)
    assert len(run("list", "--json").json["checkpoints"]) == 4
    assert len(run("list", "state/demo", "--json").json["checkpoints"]) == 3
    assert len(run("list", "--kind", "session", "--json").json["checkpoints"]) == 1
    assert len(run("list", "--limit", "2", "--json").json["checkpoints"]) == 2
    nothing = run("list", "--kind", "sandbox")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err.startswith("no sandbox checkpoints in ")


def test_list_of_an_empty_store(run: Run) -> None:
    outcome = run("list")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.startswith("no checkpoints in ")
    assert run("list", "--json").json == {"checkpoints": []}


def test_list_of_what_is_not_there(run: Run, ids: list[str]) -> None:
    assert run("list", "state/nothing").code == 3
    assert run("list", "nothing").code == 11
    assert run("list", "").code == 11  # an empty variable of a script is not all there is
    assert run("list", "", "--files").code == 11
    assert run("list", "--kind", "nothing").code == 2
    assert run("list", "--limit", "0").code == 2


def test_a_store_that_is_named_must_exist(run: Run, tmp_path: Path) -> None:
    outcome = run("list", "--store", str(tmp_path / "missing"))
    assert outcome.code == 3
    assert "missing" in outcome.err
    assert not (tmp_path / "missing").exists()


def test_list_finds_states_that_are_files(run: Run, tmp_path: Path) -> None:
    assert run("list", "--files").err == "no states are kept as files\n"
    StateManager("one").checkpoint("in the home")
    other = StateManager("two", directory=tmp_path / "elsewhere")
    other.set_state("current_stage", "late")
    made = other.checkpoint("somewhere else")
    lines = run("list", "--files").out.splitlines()
    assert [line.split()[1] for line in lines] == ["SUBJECT", "state/two", "state/one"]
    assert str(made.path) in lines[1]
    (found,) = run("list", "state/two", "--files", "--json").json["files"]
    assert (found["id"], found["stage"], found["file"]) == (made.id, "late", str(made.path))
    assert run("list", "--files", "--limit", "1", "--json").json["files"] == [found]
    assert run("list", "--files", "--kind", "session", "--json").json == {"files": []}


# subjects and stats


def test_subjects(run: Run, ids: list[str]) -> None:
    with open_store() as store:
        fill(store, "session/other", 1)
        head = store.resolve(ids[2]).short
    lines = run("subjects").out.splitlines()
    assert lines[0].split() == ["SUBJECT", "HEAD", "COUNT", "SIZE", "WHEN"]
    assert [line.split()[0] for line in lines[1:]] == ["session/other", "state/demo"]
    assert lines[2].split()[1:5] == [head, "3", "5.0", "kB"]
    (found,) = run("subjects", "--kind", "state", "--json").json["subjects"]
    assert (found["subject"], found["count"]) == ("state/demo", 3)
    nothing = run("subjects", "--kind", "sandbox")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err.startswith("no sandbox subjects in ")


def test_stats(run: Run, ids: list[str], holdfast_home: Path) -> None:
    found = run("stats", "--json").json
    assert (found["checkpoints"], found["subjects"], found["packs"]) == (3, 1, 0)
    assert found["log_bytes"] == found["disk_bytes"] > 0
    assert found["content_bytes"] > found["unique_bytes"] > 0, "`still` is stored once"
    assert found["dedup_ratio"] == 1.0
    with open_store() as store:
        for _ in range(2):
            with store.draft("state/big") as draft:
                draft.put("bytes", os.urandom(3_000_000))
                draft.commit()
        store.delete("state/big")
    found = run("stats", "--json").json
    on_disk = sum(path.stat().st_size for path in (holdfast_home / "store").rglob("*.pack"))
    assert found["packs_bytes"] == on_disk > 6_000_000
    assert found["prune_would_free_bytes"] > 3_000_000
    assert "free 3.0 MB" in run("stats").out
    assert run("stats", "--store", "memory://", "--json").json["dedup_ratio"] is None


# delete


def test_all_of_a_subject_is_deleted(run: Run, ids: list[str]) -> None:
    with open_store() as store:
        store.pin(ids[0])
        store.fork(ids[1], "fork")
        fill(store, "state/other", 2)
    head = run("delete", "state/demo", "--dry-run")
    assert head.err == "1 checkpoint would be deleted; 2 more of state/demo would go with --all\n"
    assert run("delete", ids[2], "--dry-run").err == "1 checkpoint would be deleted\n"
    planned = run("delete", "state/demo", "--all", "--dry-run")
    assert planned.err == "3 checkpoints would be deleted\n"
    assert len(planned.out.splitlines()) == 4
    with open_store() as store:
        assert len(store.list("state/demo")) == 3
        with store.lease("state/demo"):
            refused = run("delete", "state/other", "state/demo", "--all")
        assert refused.code == 4
        assert "state/demo is in use by" in refused.err
        assert len(store.list()) == 6  # all of them or none

    done = run("delete", "state/demo", "--all", "--json").json
    assert ({each["id"] for each in done["deleted"]}, done["dry_run"]) == (set(ids), False)
    with open_store() as store:
        assert {str(each.subject) for each in store.subjects()} == {"state/fork", "state/other"}
        assert store.head("state/demo") is None
    gone = run("undo", "state/demo")
    assert gone.code == 3
    assert "cannot be had back" in gone.err
    assert run("delete", "state/none", "--all").code == 3
    assert run("delete", "state/other", ids[0], "--all").code == 11  # no subject


# names


def test_names_that_are_almost_right(run: Run, ids: list[str]) -> None:
    for command in (
        ["show", "state/dmeo"],
        ["show", "session/demo"],
        ["show", "demo"],
        ["show", "state/deno~1"],
        ["restore", "demo"],
        ["diff", "state/demo", "demo"],
        ["rollback", "state/demo", "--to", "demo"],
        ["prune", "--subject", "state/demi", "--dry-run"],
        ["list", "state/demi"],
    ):
        outcome = run(*command)
        assert outcome.code == 3, command
        assert "hint: did you mean state/demo?" in outcome.err
    for command in (["log", "demo"], ["list", "deno"], ["undo", "dem"], ["rollback", "demo"]):
        outcome = run(*command)
        assert outcome.code == 11, command
        assert "hint: did you mean state/demo?" in outcome.err
    assert "did you mean" not in run("show", "state/something-else").err


def test_a_checkpoint_instead_of_a_subject(run: Run, ids: list[str]) -> None:
    short = run("list", "--json").json["checkpoints"][2]["short"]
    outcome = run("rollback", short)
    assert outcome.code == 11
    assert outcome.err.endswith(f"hint: holdfast rollback state/demo --to {short}\n")
    assert "its subject is state/demo" in run("log", short).err
    outcome = run("rollback", "state/demo~99")
    assert outcome.code == 11
    assert outcome.err.endswith("hint: holdfast rollback state/demo --to state/demo~99\n")


# show


def test_show(run: Run, ids: list[str]) -> None:
    shown = run("show", "state/demo", "--json").json
    assert shown["checkpoint"]["id"] == ids[2]
    assert {part["name"]: part["size"] for part in shown["parts"]}["bytes"] == 5000
    page = run("show", ids[2]).out
    assert ids[2] in page
    with open_store() as store:
        assert re.search(rf"parents +{store.resolve(ids[1]).short}$", page, re.MULTILINE)
    assert ids[1] not in page
    assert "step 2" in page
    assert "5.0 kB" in page


@pytest.mark.parametrize("reference", ["state/demo~2", "state/demo~~", "{id}", "{short}", "first"])
def test_checkpoints_have_many_names(run: Run, ids: list[str], reference: str) -> None:
    short = run("list", "--json").json["checkpoints"][2]["digest"][:6]
    run("tag", ids[0], "first")
    name = reference.format(id=ids[0], short=short)
    assert run("show", name, "--json").json["checkpoint"]["id"] == ids[0]


def test_show_writes_a_part(program: Run, ids: list[str]) -> None:
    assert program("show", ids[1], "--part", "bytes").out == "\x01" * 5000
    assert program("show", ids[1], "--part", "value").json == {"number": 1, "same": "x"}
    missing = program("show", ids[1], "--part", "nope")
    assert missing.code == 3
    assert "bytes, still, value" in missing.err


# log


def test_log_draws_branches_rollbacks_and_forks(run: Run, ids: list[str]) -> None:
    run("restore", ids[1])
    with open_store() as store, store.draft("state/demo", reason="another way") as draft:
        draft.put("value", {"number": 9}, split="structure")
        draft.commit()
    run("rollback", "state/demo")
    run("fork", "state/demo", "copy")
    lines = run("log", "state/demo").out.splitlines()
    assert [line[:5].rstrip() for line in lines] == ["●", "○", "│ ○", "├─╯", "○", "○"]
    assert "head, rollback" in lines[0]
    assert lines[0].endswith("forked to state/copy")
    assert "forked from state/demo at" in run("log", "state/copy").out
    for name in ("second", "third", "fourth"):
        run("fork", "state/demo", name)
    newest = run("log", "state/demo").out.splitlines()[0]
    assert newest.count("forked to") == 1
    assert newest.endswith(" and 2 more")


def test_log_for_programs(run: Run, ids: list[str]) -> None:
    run("fork", ids[0], "copy")
    document = run("log", "state/demo", "--json").json
    assert document["head"] == ids[2]
    assert [each["id"] for each in document["checkpoints"]] == ids[::-1]
    assert [each["subject"] for each in document["forks"]] == ["state/copy"]
    assert [move["verb"] for move in document["moves"]] == ["checkpoint"] * 3
    assert run("log", "state/copy", "--json").json["origins"][0]["id"] == ids[0]


def test_log_of_the_moves(run: Run, ids: list[str]) -> None:
    run("restore", ids[0])
    lines = run("log", "state/demo", "--moves").out.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["restore", *["checkpoint"] * 3]
    assert run("log", "state/nothing").code == 3


# diff


def test_diff(run: Run, ids: list[str]) -> None:
    document = run("diff", ids[0], ids[1], "--json").json
    assert (document["before"], document["after"]) == (ids[0], ids[1])
    changes = {part["name"]: part["change"] for part in document["parts"]}
    assert changes["bytes"] == changes["value"] == "changed"
    assert changes["still"] == "same"
    (value,) = document["values"]
    assert (value["part"], value["before"], value["after"]) == ("value", 0, 1)
    page = run("diff", ids[0], ids[1]).out
    assert "bytes" in page
    assert "still" not in page
    assert "still" in run("diff", ids[0], ids[1], "--all").out


def test_diff_with_the_parent(run: Run, ids: list[str]) -> None:
    for one in ("state/demo", ids[2]):
        alone = run("diff", one, "--json").json
        assert (alone["before"], alone["after"]) == (ids[1], ids[2])
    assert run("diff", "state/demo").out == run("diff", "state/demo~1", "state/demo").out
    first = run("diff", ids[0])
    assert first.code == 3
    assert "goes back further than there is" in first.err


def test_diff_of_the_same(run: Run, ids: list[str]) -> None:
    outcome = run("diff", ids[0], ids[0])
    assert outcome.out == ""
    assert "the same content" in outcome.err


# back and elsewhere


def test_restore_moves_the_head(run: Run, ids: list[str]) -> None:
    outcome = run("restore", "state/demo~1")
    assert outcome.out.startswith("head: ")
    assert "state/demo (step 1)" in outcome.out
    assert heads() == {"state/demo": ids[1]}


def test_rollback_and_undo(run: Run, ids: list[str]) -> None:
    back = run("rollback", "state/demo", "--json").json["checkpoint"]
    assert back["rollback_of"] == ids[1]
    assert heads() == {"state/demo": back["id"]}
    undone = run("undo", "state/demo", "--json").json
    assert undone["head"]["id"] == ids[2]
    assert undone["move"]["verb"] == "undo"
    assert heads() == {"state/demo": ids[2]}
    run("undo", "state/demo")
    assert heads() == {"state/demo": back["id"]}, "to undo twice is to do again"
    run("undo", "state/demo")
    assert (
        run("rollback", "state/demo", "--to", ids[0], "--json").json["checkpoint"]["rollback_of"]
        == (ids[0])
    )
    assert run("rollback", "state/nothing").code == 3
    assert run("undo", "state/nothing").code == 3


def test_fork(run: Run, ids: list[str]) -> None:
    outcome = run("fork", ids[0], "copy")
    assert "state/copy" in outcome.out
    assert set(heads()) == {"state/demo", "state/copy"}
    assert run("fork", ids[0], "copy").code == 4
    assert run("fork", ids[0], "not a name").code == 11


def test_checkpoint_of_what_nothing_runs(run: Run, ids: list[str]) -> None:
    outcome = run("checkpoint", "state/demo")
    assert outcome.code == 5
    assert "hint: take it where it runs" in outcome.err


# keep and forget


def test_tags(run: Run, ids: list[str]) -> None:
    assert run("tag", ids[0], "good", "score=0.9").out == "good\nscore=0.9\n"
    assert run("show", "good", "--json").json["checkpoint"]["tags"] == {"good": "", "score": "0.9"}
    outcome = run("tag", "good", "--remove", "good", "--remove", "score")
    assert (outcome.out, outcome.code) == ("", 0)
    assert "has no tags" in outcome.err


def test_pins(run: Run, ids: list[str]) -> None:
    assert run("pin", ids[0], ids[1]).out.count("pinned: ") == 2
    assert "pinned" in run("list").out
    assert run("unpin", ids[0], ids[1], "--json").json["checkpoints"][0]["pinned"] is False
    assert run("pin", ids[0], "nothing").code == 3
    assert "pinned" not in run("list").out, "all of them or none"


# verify


def test_verify(run: Run, ids: list[str]) -> None:
    assert run("verify").out == "ok: 3 checkpoints\n"
    assert re.fullmatch(
        r"ok: 3 checkpoints, \d+ chunks, [\d.]+ k?B stored \(15 kB of content\)\n",
        run("verify", "--deep").out,
    )
    document = run("verify", "--deep", "--json").json
    assert document["ok"] is True
    assert document["deep"] is True
    assert document["bytes_read"] > 0


# set up


def test_init(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "new"
    missing = run("list", "--store", str(place))
    assert missing.code == 3
    assert "`holdfast init`" in missing.err
    assert run("init", str(place)).out == f"made a store at {place}\n"
    assert run("list", "--store", str(place)).code == 0
    again = run("init", "--store", str(place), "--json").json
    assert again == {"store": str(place), "made": False, "encrypted": False}
    assert run("init", "memory://").code == 11


def test_a_file_is_no_store(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    for command in (["list", "--store", str(file)], ["init", str(file)]):
        outcome = run(*command)
        assert outcome.code == 11
        assert outcome.err.startswith(f"error: {file} is a file, not a store\nhint: ")


def test_help_is_an_alias(run: Run) -> None:
    assert run("help").out == run("--help").out
    assert run("help", "prune").out == run("prune", "--help").out
    assert run("help", "key", "show").out == run("key", "show", "--help").out
    assert run("help", "lst").code == run("help", "list", "x").code == 2


def test_config(run: Run, no_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = no_config / "holdfast"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("port = 9000\n")
    monkeypatch.setenv("HOLDFAST_TOKEN", "do-not-tell")
    outcome = run("config", "--store", "memory://")
    assert "do-not-tell" not in outcome.out
    rows = {line.split()[0]: line.split()[1:] for line in outcome.out.splitlines()}
    assert rows["port"] == ["9000", str(folder / "config.toml")]
    assert rows["store"] == ["memory://", "--store"]
    assert rows["token"] == ["(hidden)", "HOLDFAST_TOKEN"]
    assert rows["engine"] == ["auto", "default"]
    assert rows["cache_limit"] == ["10737418240", "(10GiB)", "default"]
    assert rows["session_idle_timeout"] == ["3600", "(1h)", "default"]
    assert rows["sandbox_cpus"] == ["2", "default"]
    told = {each["name"]: each["value"] for each in run("config", "--json").json["settings"]}
    assert (told["cache_limit"], told["session_idle_timeout"]) == (10737418240, 3600.0)
    (folder / "config.toml").write_text("prot = 9000\n")
    outcome = run("list")
    assert outcome.code == 11
    assert "unknown setting 'prot'" in outcome.err
    assert "did you mean 'port'?" in outcome.err


def test_keys(
    run: Run, holdfast_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("key", "show", "--json").json == {"signing": None, "imported": []}
    nothing = run("key", "show")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err.startswith("there is no signing key yet")
    assert not (holdfast_home / "key").exists()  # it was shown, not used
    file = tmp_path / "exported"
    mine = run("key", "export", str(file), "--json").json["id"]
    assert run("key", "show", "--json").json["signing"] == mine
    file.unlink()
    assert run("key", "export", str(file)).out == f"key {mine} is in {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("key", "export", str(file)).code == 4
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "another machine"))
    assert run("key", "show", "--json").json["signing"] != mine
    assert run("key", "import", str(file), "--json").json["id"] == mine
    assert run("key", "show", "--json").json["imported"] == [mine]
    assert run("key", "import", str(file)).code == 4
    assert run("key", "import", str(tmp_path / "nothing")).code == 3
    for text in ("", "not a key", "é"):
        file.write_text(text)
        refused = run("key", "import", str(file))
        assert refused.code == 11
        assert "`holdfast key export`" in refused.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    assert "_HOLDFAST_COMPLETE" in script
    assert "holdfast" in script


def test_init_makes_shared_stores(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "team"
    assert run("init", str(place), "--shared").code == 0
    assert stat.S_IMODE(place.stat().st_mode) == 0o2770
    private = tmp_path / "private"
    assert run("init", str(private)).code == 0
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    refused = run("init", str(private), "--shared")
    assert refused.code == 4
    assert f"chmod -R u+rwX,g+rwX,o-rwx {private}" in refused.err
