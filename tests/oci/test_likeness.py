"""Which container may come from which checkpoint."""

from __future__ import annotations

import platform

import pytest

from holdfast.model import moment
from holdfast.model.errors import Conflict, Unsupported
from holdfast.model.subject import Subject
from holdfast.oci.ledger import Ledger
from holdfast.oci.likeness import check_likeness, likeness
from holdfast.oci.policy import Policy
from holdfast.oci.reviver import choose
from holdfast.oci.shared import with_workdir
from holdfast.oci.vault import Saved

CONFIG = {
    "process": {"args": ["sh"], "cwd": "/", "user": {"uid": 0, "gid": 0}, "env": ["A=1"]},
    "root": {"path": "rootfs"},
    "mounts": [{"destination": "/proc"}, {"destination": "/data"}],
}


def environment(**changes: object) -> dict[str, object]:
    return {"machine": platform.machine(), "container": likeness(CONFIG), **changes}


def test_the_same_container() -> None:
    check_likeness(environment(), CONFIG)
    other_variables = {**CONFIG, "process": {**CONFIG["process"], "env": ["A=2"]}}  # type: ignore[dict-item]
    check_likeness(environment(), other_variables)


@pytest.mark.parametrize(
    ("part", "change", "word"),
    [
        ("process", {"args": ["bash"]}, "args"),
        ("process", {"cwd": "/home"}, "cwd"),
        ("process", {"user": {"uid": 5, "gid": 5}}, "user"),
        ("process", {"terminal": True}, "terminal"),
        ("root", {"readonly": True}, "readonly"),
    ],
)
def test_another_container(part: str, change: dict[str, object], word: str) -> None:
    changed = {**CONFIG, part: {**CONFIG[part], **change}}  # type: ignore[dict-item]
    with pytest.raises(Conflict, match=word):
        check_likeness(environment(), changed)


def test_another_machine_or_nothing_to_compare() -> None:
    with pytest.raises(Unsupported, match="vax"):
        check_likeness(environment(machine="vax"), CONFIG)
    with pytest.raises(Conflict):
        check_likeness(environment(container=None), CONFIG)
    with pytest.raises(Conflict, match="mounts"):
        check_likeness(environment(), {**CONFIG, "mounts": []})


def saved(name: str) -> Saved:
    return Saved(name, Subject("container", "default/tc"), moment.now(), 1, "")


def test_which_checkpoints_may_be_tried() -> None:
    new, old = saved("new"), saved("old")
    policy = Policy(restore_limit=2)
    assert choose([new, old], Ledger(), policy) == ([new, old], [])
    usable, refused = choose([new, old], Ledger(failures={"new": 2, "old": 1}), policy)
    assert usable == [old]
    assert "failed 2 times" in refused[0]
    crashed = Ledger(crashed="new")
    assert choose([new, old], crashed, policy) == ([new, old], [])
    assert choose([new, old], crashed, Policy(on_crash="cold"))[0] == []
    assert choose([saved("newer"), new], crashed, Policy(on_crash="cold"))[0] != []


def test_a_shared_working_directory_is_added_once() -> None:
    once = with_workdir(CONFIG, "/scratch", "/nfs/scratch")
    assert once["process"]["cwd"] == "/scratch"
    assert once["process"]["args"] == ["sh"]
    assert once["mounts"][-1]["source"] == "/nfs/scratch"
    assert with_workdir(once, "/scratch", "/nfs/scratch") == once
    assert CONFIG["process"]["cwd"] == "/"  # type: ignore[index]
