"""Looking at a store: subjects, a lineage, a checkpoint, all of it as it changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.dashboard.conftest import Watched, holdfast
from tests.server.conftest import Server, add

from holdfast import sync
from holdfast.bundle import heads
from holdfast.model.subject import Subject
from holdfast.state import StateManager
from holdfast.store import Store

EVIL = "<script>alert(1)</script><img/src=x/onerror=alert(1)>"


@pytest.fixture(scope="module", autouse=True)
def content(store: Store, server: Server) -> None:
    """Subjects of all kinds, one of them with a history, one with evil names."""
    first = add(store, "state/demo", "the beginning", b"x" * 1500)
    add(store, "state/demo", "the middle", b"y" * 9000)
    store.rollback("state/demo")
    store.fork(first, "copy")
    for kind in ("session", "sandbox", "container"):
        add(store, f"{kind}/other", f"a {kind}")
    with store.draft(f"session/{EVIL}", reason=EVIL, stage=EVIL, tags={"t<b>": EVIL}) as draft:
        items = [
            {"name": "data", "outcome": "exact", "tier": "cloudpickle", "size_bytes": 1500},
            {"name": EVIL, "outcome": "placeholder", "reason": EVIL},
        ]
        draft.put("report", {"items": items}, split="structure")
        draft.put("part<script>", b"x")
        draft.commit()


def names(page: Page) -> list[str]:
    return page.locator("ul.subjects .name").all_inner_texts()


def test_subjects_are_found_by_words_and_by_kind(visit: Watched) -> None:
    page = visit("/")
    expect(page.get_by_role("heading", name="6 subjects")).to_be_visible()
    expect(page.locator(".link")).to_have_text("live")
    shown = page.locator("ul.subjects .name")
    page.get_by_role("button", name="state 2").click()
    expect(shown).to_have_count(2)
    assert sorted(names(page)) == ["copy", "demo"]
    page.get_by_label("Search subjects").fill("rollback")
    expect(shown).to_have_count(1)
    assert names(page) == ["demo"]
    page.get_by_label("Search subjects").fill("nothing has this")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(shown).to_have_count(6)
    assert len(names(page)) == 6


def test_a_lineage_leads_to_its_checkpoints_and_forks(visit: Watched, store: Store) -> None:
    page = visit("/")
    page.get_by_role("link", name="demo", exact=True).click()
    expect(page.get_by_role("heading", name="demo")).to_be_visible()
    rows = page.locator(".tree .row")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("head")
    expect(rows.nth(0)).to_contain_text("back to")
    expect(rows.nth(2)).to_contain_text("forked to state/copy")
    expect(page.locator(".tree circle")).to_have_count(3)
    expect(page.locator(".tree path.lane")).to_have_count(2)
    page.get_by_role("link", name="state/copy").click()
    expect(page.locator(".tree .row")).to_contain_text("forked from state/demo")
    page.go_back()
    page.get_by_role("link", name="the beginning").click()
    expect(page.get_by_role("heading", name="the beginning")).to_be_visible()
    expect(page.get_by_label("Facts")).to_contain_text("1.5 kB in 1 part")
    expect(page.get_by_label("Facts")).to_contain_text(store.list("state/demo")[2].id)
    page.get_by_text("How the head").wait_for(state="detached")


def test_a_report_is_shown_item_by_item(visit: Watched, store: Store) -> None:
    page = visit(f"/checkpoints/{store.list(f'session/{EVIL}')[0].id}")
    report = page.get_by_label("Report")
    expect(report.get_by_role("heading", name="Report: 2 items")).to_be_visible()
    first = report.locator("tbody tr").first
    expect(first).to_contain_text("placeholder")  # what is missing comes first
    report.get_by_role("button", name="exact 1").click()
    expect(report.locator("tbody tr")).to_have_count(1)


def test_what_others_wrote_stays_text(visit: Watched, store: Store) -> None:
    page = visit("/")
    expect(page.get_by_role("link", name=EVIL)).to_be_visible()
    page.get_by_role("link", name=EVIL).click()
    expect(page.locator(".tree .row")).to_contain_text(EVIL)
    page.locator(".tree .row a.reason").click()
    expect(page.get_by_text("part<script>")).to_be_visible()
    assert page.locator("script").count() == 1
    assert page.locator("img").count() == 0
    # Even a script that got into the page would not run.
    assert (
        page.evaluate(
            """() => {
          try {
            document.body.insertAdjacentHTML("beforeend", "<b>markup</b>");
            return "inserted";
          } catch (error) { return error.name; }
        }"""
        )
        == "TypeError"
    )
    visit.troubles[:] = [each for each in visit.troubles if "TrustedHTML" not in each]


def test_a_variable_that_is_a_script_stays_text(visit: Watched, store: Store) -> None:
    """Its name, its value, its type and its source, as a session really keeps them."""
    with sync.Session("evil", store=store) as session:
        code = f"globals()[{EVIL!r}] = {EVIL!r}\n"
        code += f"word = type({EVIL!r}, (), {{}})\nlisted = [{EVIL!r}] * 3\n"
        code += f"def function(x={EVIL!r}): return x"
        assert session.execute(code).error is None
        first = session.checkpoint(EVIL)
        session.execute(f"globals()[{EVIL!r}] = 1; listed.append({EVIL!r})")
        second = session.checkpoint(EVIL)
    page = visit(f"/checkpoints/{first.id}")
    variables = page.get_by_label("Variables")
    expect(variables.locator("code", has_text=EVIL).first).to_be_visible()
    variables.locator("summary", has_text="def function").click()
    expect(variables.locator("pre")).to_contain_text(EVIL)
    page = visit(f"/diff?before={first.id}&after={second.id}")
    expect(page.get_by_label("Variables").locator("tr", has_text=EVIL).first).to_be_visible()
    assert (page.locator("script").count(), page.locator("img").count()) == (1, 0)


def test_a_comparison_without_a_changed_variable_says_so(visit: Watched, store: Store) -> None:
    with sync.Session("calm", store=store) as session:
        session.execute("x = 1", check=True)
        first = session.checkpoint()
        session.execute("1 + 1", check=True)
        second = session.checkpoint()
    page = visit(f"/diff?before={first.id}&after={second.id}")
    expect(page.get_by_role("heading", name="No variable changed")).to_be_visible()


def test_everything_follows_the_store(visit: Watched, store: Store) -> None:
    first, second, third = visit("/"), visit("/subjects/state/live"), visit("/")
    expect(second.get_by_role("alert")).to_contain_text("no checkpoints of state/live")
    made = add(store, "state/live", "while you watch")
    for page in (first, third):
        expect(page.get_by_role("link", name="live", exact=True)).to_be_visible()
    page = second
    expect(page.locator(".tree .row")).to_have_count(1)
    add(store, "state/live", "again")
    expect(page.locator(".tree .row")).to_have_count(2)
    expect(page.locator(".tree .row").first).to_contain_text("head")
    store.pin(made)
    expect(page.locator(".tree .row").last).to_contain_text("pinned")
    store.tag(made, "kept")
    expect(page.locator(".tree .row").last).to_contain_text("kept")
    store.delete(store.head("state/live") or "")
    expect(page.locator(".tree .row")).to_have_count(1)
    store.unpin(made)
    store.delete(made)
    expect(page.get_by_role("heading", name="No checkpoints are left")).to_be_visible()
    expect(first.get_by_role("link", name="live", exact=True)).to_have_count(0)


def test_the_stores_health_follows_it_too(
    visit: Watched, store: Store, server: Server, home: Path
) -> None:
    """A checkpoint, a drill and a verification that others made, in a page that nobody reloads."""
    page = visit("/store")
    content = page.get_by_label("Content", exact=True)
    before = len(store.list())
    expect(content).to_contain_text(f"{before} checkpoints")
    drills = page.get_by_label("Drills")
    expect(drills).to_contain_text("There was none yet")
    page.evaluate("window.sameOne = true")

    StateManager("drilled", store=store).checkpoint("while you look")
    expect(content).to_contain_text(f"{before + 1} checkpoints")
    with server.client(server.token) as api:
        done = api.post("/v1/drills", json={"subjects": ["state/drilled"]})
    assert [each["ok"] for each in done.json()["drills"]] == [True]
    expect(drills).to_contain_text("1 head brought back elsewhere and compared")
    expect(drills.locator(".mark")).to_have_text("ok")
    expect(drills.get_by_role("button")).to_be_enabled()
    holdfast(home, "verify")  # at another terminal
    expect(page.get_by_label("Verification")).to_contain_text(f"{before + 1} checkpoints")
    assert page.evaluate("window.sameOne")


def test_the_members_of_a_bundle_follow_it_too(
    visit: Watched, store: Store, server: Server
) -> None:
    add(store, "state/member")
    with sync.Session("member", store=store) as session:
        session.checkpoint("to be bound")
    bound = [Subject("state", "member"), Subject("session", "member")]
    made = heads.bind(store, Subject("bundle", "live"), bound, "together")
    page = visit(f"/checkpoints/{made.id}")
    members = page.get_by_label("Members")
    of_state = members.locator("li", has_text="state/member")
    expect(of_state.get_by_role("link")).to_have_count(2)  # the subject, and its checkpoint
    store.delete(store.list("state/member")[0])
    expect(of_state).to_contain_text("kept by the bundle")
    of_session = members.locator("li", has_text="session/member")
    expect(of_session).not_to_contain_text("running")
    with server.client(server.token) as api:
        assert api.post("/v1/sessions", json={"name": "member"}).status_code == 200
        expect(of_session).to_contain_text("running")
        assert api.delete("/v1/sessions/member").status_code == 200
    expect(of_session).not_to_contain_text("running")


@pytest.mark.parametrize("path", ["/checkpoints/nothing", "/subjects/state/nothing", "/nowhere"])
def test_there_are_no_dead_ends(visit: Watched, path: str) -> None:
    if path == "/nowhere":
        page = visit("/")
        page.evaluate(
            "history.pushState(null, '', '/nowhere'); dispatchEvent(new Event('popstate'))"
        )
    else:
        page = visit(path)
        expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="All subjects").click()
    expect(page.get_by_role("heading", name=re.compile(r"\d subjects"))).to_be_visible()
