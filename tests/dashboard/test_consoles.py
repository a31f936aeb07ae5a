"""Live consoles: a session and a sandbox, typed into from the page."""

from __future__ import annotations

from playwright.sync_api import expect
from tests.dashboard.conftest import Watched, picture, type_in

from holdfast.store import Store


def test_a_session(visit: Watched, store: Store) -> None:
    page = visit("/run")
    expect(page.get_by_text("Nothing. Start a session or a sandbox above.")).to_be_visible()
    page.get_by_label("A session").get_by_label("Name").fill("typed")
    page.get_by_role("button", name="Start or resume").click()
    screen = page.get_by_role("log")
    expect(page.locator(".mark.live")).to_have_text("ready")
    type_in(page, "total = 40 + 2\ntotal")
    expect(screen.locator(".value")).to_have_text("42")
    # Output comes while the program runs: the gate opens only after it was seen.
    type_in(page, "print('first')\nname = input('who? ')\nprint('hello', name)")
    expect(screen).to_contain_text("first")
    page.get_by_label("who?").fill("<b>you</b>")
    page.get_by_role("button", name="Send").click()
    expect(screen).to_contain_text("hello <b>you</b>")
    assert page.locator(".screen b").count() == 0
    type_in(page, "1 / 0")
    expect(screen.locator(".error")).to_contain_text("ZeroDivisionError")
    page.get_by_role("button", name="Checkpoint").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("typed in")
    page.get_by_role("dialog").get_by_role("button", name="Checkpoint").click()
    expect(page.locator(".toast").first).to_contain_text("is stored")
    picture(page, "dashboard-console")
    head = store.head("session/typed")
    assert head is not None
    assert head.reason == "typed in"
    type_in(page, "total = 'lost'")
    type_in(page, "import time\nprint('go' + 'ing')\nwhile True: time.sleep(0.01)")
    expect(screen).to_contain_text("going")  # else it would be the cell before that is interrupted
    page.get_by_role("button", name="Interrupt").click()
    expect(screen.locator(".error").last).to_contain_text("KeyboardInterrupt")

    # The same console in another tab, from its first line on.
    other = visit("/console/session/typed")
    expect(other.get_by_role("log").locator(".value")).to_have_text("42")
    other.get_by_role("button", name="Checkpoint").click()
    other.get_by_role("dialog").get_by_role("button", name="Checkpoint").click()
    expect(other.get_by_role("dialog")).to_have_count(0)
    other.get_by_role("button", name="Roll back").click()
    other.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(other.get_by_role("dialog")).to_have_count(0)
    type_in(other, "total")
    expect(page.get_by_role("log").locator(".value").last).to_have_text("42")

    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".toast").last).to_contain_text("has stopped")
    assert store.owner("session/typed") is None
    expect(other.get_by_text("It has ended: it was stopped")).to_be_visible()  # the other tab, too
    other.get_by_role("button", name="Bring it back").click()
    type_in(other, "total")
    expect(other.get_by_role("log").locator(".value").last).to_have_text("42")
    again = visit("/subjects/session/typed")
    again.get_by_role("link", name="Console").click()
    type_in(again, "total + 1")
    expect(again.get_by_role("log").locator(".value").last).to_have_text("43")


def test_a_sandbox(visit: Watched, store: Store) -> None:
    page = visit("/run")
    page.get_by_label("A sandbox").get_by_label("Label").fill("mine")
    page.get_by_role("button", name="Create").click()
    screen = page.get_by_role("log")
    type_in(page, "echo out; echo err >&2; echo kept > /root/file; read line; echo got $line")
    expect(screen.locator(".stderr")).to_contain_text("err")
    page.get_by_label("Its input").fill("typed")
    page.get_by_role("button", name="Send").click()
    expect(screen).to_contain_text("got typed")
    page.get_by_label("Language").select_option("python")
    type_in(page, "print(6 * 7)")
    expect(screen).to_contain_text("42")
    page.get_by_label("Language").select_option("bash")
    type_in(page, "exit 3")
    expect(screen).to_contain_text("exit code 3")
    page.get_by_role("button", name="Checkpoint").click()
    page.get_by_role("dialog").get_by_role("button", name="Checkpoint").click()
    expect(page.locator(".toast").first).to_contain_text("is stored")
    subject = page.url.partition("/console/")[2]
    type_in(page, "echo changed > /root/file; echo so $((1 + 1))")
    expect(screen).to_contain_text("so 2")
    # What runs cannot be frozen by this engine, so it has to be over.
    expect(page.locator(".mark.live")).to_have_text("ready")
    page.get_by_role("button", name="Checkpoint").click()
    page.get_by_role("dialog").get_by_role("button", name="Checkpoint").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(screen).to_contain_text("rolled back")
    page.get_by_role("link", name=subject).click()
    page.get_by_role("link", name="manual").last.click()
    expect(page.get_by_label("Files")).to_contain_text("file")
    page.go_back()
    page.get_by_role("link", name="Console").click()
    expect(page.get_by_role("log")).to_contain_text("got typed")  # as it was left
    page.reload()  # the token of the sandbox is kept for this tab
    type_in(page, "cat /root/file")
    expect(page.get_by_role("log")).to_contain_text("kept")
    page.get_by_role("link", name=subject).click()
    page.get_by_role("button", name="Fork").click()  # of one that runs: a live copy
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    expect(page.get_by_role("textbox", name="Code")).to_be_visible()
    assert subject not in page.url
    type_in(page, "cat /root/file; echo a copy")
    expect(page.get_by_role("log")).to_contain_text("kept\na copy")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".toast").last).to_contain_text("has stopped")
    expect(page.get_by_text("It has ended: it was killed")).to_be_visible()
    expect(page.get_by_role("button", name="Bring it back")).to_have_count(0)

    # Nobody runs that one any more; a fork of its checkpoint is a sandbox to work in.
    page.get_by_role("main").get_by_role("link", name="sandbox/").first.click()
    page.locator(".tree .row a.reason").first.click()
    page.get_by_role("button", name="Fork").click()
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    expect(page.get_by_role("textbox", name="Code")).to_be_visible()
    type_in(page, "cat /root/file; echo from the dead")
    expect(page.get_by_role("log")).to_contain_text("kept\nfrom the dead")


def test_a_sandbox_of_somebody_else_needs_its_token(visit: Watched) -> None:
    page = visit("/console/sandbox/0123456789abcdef0123456789abcdef")
    page.get_by_label("Token of the sandbox").fill("not-the-token")
    page.get_by_role("button", name="Attach").click()
    expect(page.get_by_role("alert")).to_be_visible()


def test_others_have_no_console(visit: Watched) -> None:
    page = visit("/console/state/x")
    page.get_by_role("main").get_by_role("link", name="Run something").click()
    expect(page.get_by_role("heading", name="Run", exact=True)).to_be_visible()
