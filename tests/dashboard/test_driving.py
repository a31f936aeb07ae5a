"""Driving a store from the page: every button, and what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.dashboard.conftest import Watched, picture
from tests.server.conftest import add

from holdfast.store import Store, open_store


def toast(page: Page, words: str) -> None:
    expect(page.locator(".toast", has_text=words).first).to_be_visible()


def test_the_first_time(visit: Watched, store: Store) -> None:
    """An empty store offers an example; the example is there to play with."""
    other = visit("/store")
    expect(other.get_by_role("heading", name="The store is empty")).to_be_visible()
    page = visit("/")
    expect(page.get_by_role("heading", name="Nothing is frozen yet")).to_be_visible()
    for empty in (page, other):
        expect(empty.get_by_role("button", name="Make an example")).to_be_enabled()
        expect(empty.get_by_role("main")).to_contain_text("    session.checkpoint(")
        compile(empty.locator("main pre").inner_text(), "what to type", "exec")  # in a file, too
    other.get_by_role("link", name="Start a session or a sandbox").click()
    expect(other.get_by_role("button", name="Start or resume")).to_be_visible()
    other.go_back()
    other.get_by_role("button", name="Make an example").click()
    page, other = other, page
    toast(page, "The example is there")
    expect(page.get_by_role("heading", name="example")).to_be_visible()
    expect(page.locator(".tree .row")).to_have_count(5)
    assert {str(each.subject) for each in store.subjects()} == {"session/example", "state/example"}
    picture(page, "dashboard-lineage")
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Subjects").click()
    expect(page.get_by_role("heading", name="2 subjects")).to_be_visible()
    expect(other.get_by_role("heading", name="2 subjects")).to_be_visible()  # by itself


def test_two_checkpoints_of_a_session_side_by_side(visit: Watched) -> None:
    page = visit("/subjects/session/example")
    rows = page.locator(".tree .row")
    rows.last.get_by_role("checkbox").check()
    rows.first.get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare (2 of 2)").click()
    changed = page.get_by_label("Variables")
    signal = changed.locator("tr", has_text="signal")
    expect(signal.locator("svg.plot")).to_have_count(4)  # two plots on each side
    expect(signal).to_contain_text("4000 float64")
    expect(changed.locator("tr", has_text="settings")).to_contain_text("'clip': 0.99")
    smooth = changed.locator("tr", has_text="def smooth")
    smooth.locator("summary").click()
    expect(smooth).to_contain_text("np.convolve")
    picture(page, "dashboard-diff")
    before = page.get_by_label("Before", exact=True).inner_text()
    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_label("After", exact=True)).to_contain_text(before.splitlines()[-1])


def test_two_checkpoints_of_a_state_side_by_side(visit: Watched, store: Store) -> None:
    head = store.head("state/example")
    assert head is not None
    page = visit(f"/checkpoints/{head.id}")
    expect(page.get_by_label("State")).to_contain_text("learning_rate")
    page.get_by_role("link", name="What changed").click()
    values = page.get_by_label("Values")
    expect(values.locator("tr", has_text="learning_rate").locator("td.new")).to_have_text("0.0003")


def test_a_checkpoint_in_detail(visit: Watched, store: Store) -> None:
    head = store.head("session/example")
    assert head is not None
    page = visit(f"/checkpoints/{head.id}")
    facts = page.get_by_label("Facts")
    expect(facts).to_contain_text("new,")
    expect(facts).to_contain_text("shared")
    expect(facts.get_by_role("link").first).to_have_text(store.resolve(head.parents[0]).short)
    expect(page.get_by_label("Versions")).to_contain_text("numpy")
    expect(page.get_by_label("Variables").locator("tr", has_text="peak")).to_contain_text("float")
    picture(page, "dashboard-checkpoint")


def test_rollback_and_its_undo(visit: Watched, store: Store) -> None:
    page = visit("/subjects/state/example")
    before = store.head("state/example")
    assert before is not None
    page.get_by_role("button", name="Roll back").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing is lost")
    dialog.get_by_role("button", name="Roll back").click()
    expect(page.locator(".tree .row").first).to_contain_text("back to")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    toast(page, "is where it was")
    assert store.head("state/example") == before


def test_rollback_to_any_checkpoint(visit: Watched, store: Store) -> None:
    first = store.list("state/example")[-1]
    page = visit(f"/checkpoints/{first.id}")
    page.get_by_role("button", name="Roll back to this").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    toast(page, f"is back at {first.short}")
    head = store.head("state/example")
    assert head is not None
    assert head.rollback_of == first.id


def test_a_fork_and_what_is_refused(visit: Watched, store: Store) -> None:
    page = visit("/subjects/state/example")
    page.get_by_role("button", name="Fork").click()
    dialog = page.get_by_role("dialog")
    name = dialog.get_by_label("Name of the new subject")
    name.fill("example")
    dialog.get_by_role("button", name="Fork").click()
    expect(dialog.get_by_role("alert")).to_contain_text("state/example exists already")
    expect(dialog.get_by_role("alert")).to_contain_text("choose another name")  # the hint
    name.fill("second")
    dialog.get_by_role("button", name="Fork").click()
    expect(page.get_by_role("heading", name="second")).to_be_visible()
    expect(page.locator(".tree .row")).to_contain_text("forked from state/example")
    assert store.head("state/second") is not None


def test_pin_and_tag(visit: Watched, store: Store) -> None:
    one = store.list("state/example")[-1]
    page = visit(f"/checkpoints/{one.id}")
    page.get_by_role("button", name="Pin").click()
    expect(page.get_by_role("heading", name="pinned")).to_be_visible()
    assert store.resolve(one.id).pinned
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Pin", exact=True)).to_be_visible()
    page.get_by_role("button", name="Tag").click()
    page.get_by_role("dialog").get_by_label("Tag").fill("good")
    page.get_by_role("dialog").get_by_role("button", name="Tag").click()
    expect(page.get_by_role("heading", name="good")).to_be_visible()
    assert store.resolve(one.id).tags == {"good": ""}


def test_a_deletion_can_be_taken_back(visit: Watched, store: Store) -> None:
    kept, gone = add(store, "state/brief", "kept"), add(store, "state/brief", "gone")
    page = visit(f"/checkpoints/{kept}")
    page.clock.install()
    page.get_by_role("button", name="Delete").click()
    toast(page, "will be deleted in 8 seconds")
    expect(page.get_by_role("button", name="Keep it")).to_be_visible()
    page.locator(".toast").get_by_role("button", name="Undo").click()
    page.clock.run_for(10_000)
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    assert store.resolve(kept).id == kept
    page.get_by_role("link", name="state/brief").click()
    page.get_by_role("link", name="gone").click()
    page.get_by_role("button", name="Delete").click()
    toast(page, "will be deleted")
    page.get_by_role("link", name="state/brief").click()
    expect(page.locator(".row.going")).to_contain_text("gone")
    page.clock.run_for(10_000)
    expect(page.locator(".tree .row")).to_have_count(1)
    assert [each.id for each in store.list("state/brief")] == [kept]
    assert gone not in {each.id for each in store.list()}


def test_leaving_the_page_keeps_what_was_to_go(visit: Watched, store: Store) -> None:
    kept = add(store, "state/left")
    page = visit(f"/checkpoints/{kept}")
    page.get_by_role("button", name="Delete").click()
    toast(page, "will be deleted")
    page.reload()
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    assert store.resolve(kept).id == kept


def test_an_export_is_an_archive(visit: Watched, store: Store, tmp_path: Path) -> None:
    head = store.head("state/example")
    assert head is not None
    page = visit(f"/checkpoints/{head.id}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    download.value.save_as(tmp_path / "file")
    with open_store("memory://") as other:
        assert other.import_(tmp_path / "file").digest == head.digest


def test_subjects_are_bound_and_brought_back_together(visit: Watched, store: Store) -> None:
    before = {name: store.head(f"state/{name}") for name in ("example", "second")}
    page = visit("/")
    page.get_by_role("button", name="Bind").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name of the bundle").fill("both")
    dialog.get_by_label("Subjects").fill("state/example state/nothing")
    dialog.get_by_role("button", name="Bind").click()
    expect(dialog.get_by_role("alert")).to_contain_text("state/nothing has no checkpoint")
    assert {name: store.head(f"state/{name}") for name in before} == before
    dialog.get_by_label("Subjects").fill("state/example, state/second")
    dialog.get_by_role("button", name="Bind").click()
    members = page.get_by_label("Members")
    expect(members.locator("li")).to_have_count(2)
    expect(page.get_by_role("button", name="Fork")).to_have_count(0)
    picture(page, "dashboard-bundle")
    bound = {name: store.head(f"state/{name}") for name in before}
    for name in before:
        add(store, f"state/{name}", "after it")
    page.get_by_role("button", name="Bring all back").click()
    page.get_by_role("dialog").get_by_role("button", name="Bring all back").click()
    toast(page, "are back at")
    assert {name: store.head(f"state/{name}") for name in before} == bound
    with store.lease("state/second", owner="somebody else"):
        page.get_by_role("button", name="Bring all back").click()
        page.get_by_role("dialog").get_by_role("button", name="Bring all back").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("somebody else")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="bundle/both").click()
    page.get_by_role("button", name="Checkpoint").click()
    expect(page.get_by_role("dialog").get_by_label("Subjects")).to_have_value(
        re.compile("state/example")
    )


def test_the_health_of_the_store(visit: Watched, store: Store) -> None:
    page = visit("/store")
    expect(page.get_by_label("On disk")).to_contain_text("kB")
    kinds = page.get_by_label("Space by kind")
    expect(kinds.locator("tbody tr")).to_have_count(3)
    expect(page.get_by_label("Sharing over time").locator("polyline")).to_have_count(2)
    verification = page.get_by_label("Verification")
    expect(verification).to_contain_text("was not verified yet")
    verification.get_by_role("button", name="Read every byte").click()
    toast(page, "All is well")
    expect(verification).to_contain_text("every byte")
    drills = page.get_by_label("Drills")
    expect(drills).to_contain_text("There was none yet")
    picture(page, "dashboard-store")
    odd = {"state_info": {"when": {"$type": "datetime", "value": "noon"}}, "schema_version": 1}
    with store.draft("state/odd") as draft:
        draft.put("state", odd, split="structure")
        draft.commit()
    drills.get_by_role("button", name="Drill now").click()
    expect(drills).to_contain_text("brought back elsewhere and compared")
    # One of those that these tests have added by hand has a value that no program can load.
    expect(drills.locator(".mark")).to_contain_text("failed")
    expect(drills.locator(".trouble").first).to_contain_text("cannot be read")
    expect(drills.locator(".trouble").first.get_by_role("link").last).to_contain_text("state/")
    prune = page.get_by_label("Prune")
    expect(prune).to_contain_text("would remove 0 checkpoints")
    prune.get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Checkpoints to keep").fill("0")
    dialog.get_by_role("button", name="Prune").click()
    expect(dialog.get_by_role("alert")).to_contain_text("cannot be used")
    dialog.get_by_label("Checkpoints to keep").fill("4")
    dialog.get_by_role("button", name="Prune").click()
    toast(page, "removed")
    assert len(store.list("state/example")) <= 6


def test_the_keyboard_alone(visit: Watched, store: Store) -> None:
    page = visit("/")
    expect(page.locator(".link")).to_have_text("live")
    expect(page.get_by_role("searchbox")).to_be_visible()  # the subjects are there
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("session example")
    page.keyboard.press("Tab")
    expect(page.locator("ul.subjects li")).to_have_count(1)
    page.get_by_role("link", name="example", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".tree .row")).to_have_count(len(store.list("session/example")))
    page.keyboard.press("j")
    expect(page.locator('[data-row="0"] a.reason')).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("x")
    page.keyboard.press("ArrowDown")
    expect(page.locator('[data-row="1"] a.reason')).to_be_focused()
    page.keyboard.press("x")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="What changed")).to_be_visible()
    page.keyboard.press("u")
    expect(page.locator(".tree .row").first).to_be_visible()
    page.keyboard.press("h")
    expect(page.get_by_role("heading", name="The store")).to_be_visible()
    page.keyboard.press("?")
    page.get_by_label("shortcuts of single keys").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    expect(page.get_by_role("heading", name="The store")).to_be_visible()
    page.evaluate("localStorage.clear()")


def test_a_server_that_goes_and_comes_back_is_followed(visit: Watched, store: Store) -> None:
    page = visit("/")
    expect(page.locator(".link")).to_have_text("live")
    page.context.set_offline(True)
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    page.context.set_offline(False)
    add(store, "state/while-away")
    expect(page.get_by_role("link", name="while-away")).to_be_visible()
    expect(page.locator(".link")).to_have_text("live")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_choice(visit: Watched, scheme: str) -> None:
    page = visit("/")
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    expect(page.get_by_role("heading", name=re.compile("subjects"))).to_be_visible()
    light = "rgb(245, 246, 248)"
    background = "getComputedStyle(document.body).backgroundColor"
    assert (page.evaluate(background) == light) == (scheme == "light")
    page.get_by_role("button", name="Colours: system").click()
    assert page.evaluate(background) == light
    page.get_by_role("button", name="Colours: light").click()
    assert page.evaluate(background) != light
    page.reload()
    assert page.evaluate(background) != light
    page.evaluate("localStorage.clear()")
