"""What follows from the findings, as a pure function."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.diagnosis import Ability, Diagnosis, decide
from holdfast.runtime.finding import Finding, Level, Status

NAMES = (
    *("python", "libraries", "space", "durability", "dirty pages"),
    *("root", "overlayfs", "runc", "criu", "runsc"),
)
GOOD = {name: Finding(name, Status.OK, "fine") for name in NAMES}


def abilities(**changes: Status) -> dict[Level, Ability]:
    findings = {**GOOD}
    for name, status in changes.items():
        name = name.replace("_", " ")
        findings[name] = replace(findings[name], status=status)
    return {ability.level: ability for ability in decide(findings.values())}


def test_a_machine_with_everything() -> None:
    able = abilities()
    assert all(ability.usable for ability in able.values())
    assert able[Level.SANDBOX].engines == ("gvisor", "runc", "process")


def test_without_root_the_process_engine_is_left() -> None:
    able = abilities(root=Status.LIMITED)
    assert able[Level.STATE].usable
    assert able[Level.SESSION].usable
    assert able[Level.SANDBOX].engines == ("process",)
    assert not able[Level.CONTAINER].usable
    assert "root" in able[Level.CONTAINER].note


def test_without_criu_gvisor_still_freezes() -> None:
    able = abilities(criu=Status.MISSING)
    assert able[Level.SANDBOX].engines == ("gvisor", "process")
    assert not able[Level.CONTAINER].usable
    assert able[Level.CONTAINER].note == "needs: criu"


def test_an_old_criu_will_do_for_now() -> None:
    assert abilities(criu=Status.LIMITED)[Level.CONTAINER].usable


def test_a_broken_sandbox_is_not_offered() -> None:
    assert "gvisor" not in abilities(runsc=Status.BROKEN)[Level.SANDBOX].engines


def test_without_page_tracking_sessions_hash() -> None:
    able = abilities(dirty_pages=Status.LIMITED)[Level.SESSION]
    assert able.usable
    assert "hashing" in able.note


def test_nothing_works_where_nothing_can_be_written() -> None:
    findings = {**GOOD, "durability": Finding("durability", Status.BROKEN, "read-only")}
    diagnosis = Diagnosis(tuple(findings.values()))
    assert not diagnosis.usable
    assert all("durability" in ability.note for ability in diagnosis.abilities)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(Status))))
def test_any_mixture_has_an_answer_for_every_level(found: list[tuple[str, Status]]) -> None:
    answer = decide([Finding(name, status, "") for name, status in found])
    assert [ability.level for ability in answer] == list(Level)
    assert all(ability.note for ability in answer)
