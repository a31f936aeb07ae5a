"""For everybody: axe finds nothing serious in any view, light or dark, and a phone is enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.dashboard.conftest import Watched, picture
from tests.server.conftest import Server, add

from holdfast.bundle import heads
from holdfast.dashboard import example
from holdfast.model.subject import Subject
from holdfast.store import Store

AXE = Path(__file__).resolve().parents[2] / "web/node_modules/axe-core/axe.min.js"
RUN = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.html.slice(0, 150)).join(" | ")}`);
}"""


@pytest.fixture(scope="module", autouse=True)
def content(store: Store, server: Server) -> None:
    import asyncio

    asyncio.run(example.make(store))
    add(store, "container/default/web", "by its engine")
    heads.bind(store, Subject("bundle", "all"), [Subject("state", "example")], "together")
    add(store, "state/with-a-very-long-name-that-goes-on-and-on/and-on-and-on-and-on", "x" * 300)


def views(store: Store) -> dict[str, str]:
    """Every view, by what can be seen when it is complete."""
    newest, *_, oldest = store.list("session/example")
    bundle = store.list("bundle/all")[0]
    return {
        "/": "subjects",
        "/subjects/session/example": "How the head moved",
        f"/checkpoints/{newest.id}": "Versions and surroundings",
        f"/diff?before={oldest.id}&after={newest.id}": "in the store",
        f"/checkpoints/{bundle.id}": "Bound together",
        "/subjects/bundle/all": "Bring all back",
        "/subjects/container/default/web": "Its engine runs it",
        "/store": "Drills",
        "/run": "Running now",
        "/console/session/example": "ready",
        "/nowhere": "nothing at this address",
    }


def findings(page: Page) -> list[str]:
    page.evaluate(AXE.read_text())
    found: list[str] = page.evaluate(RUN)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Watched, store: Store, scheme: str) -> None:
    page = visit("/")
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    trouble: dict[str, list[str]] = {}
    for path, words in views(store).items():
        page.evaluate("([path]) => history.pushState(null, '', path)", [path])
        page.evaluate("dispatchEvent(new Event('popstate'))")
        expect(page.get_by_role("main")).to_contain_text(words)
        if found := findings(page):
            trouble[path] = found
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Help and shortcuts").click()
    expect(page.get_by_role("dialog", name="Help")).to_be_visible()
    if found := findings(page):
        trouble["help"] = found
    assert not trouble
    # And it would have found something.
    page.evaluate("document.querySelector('dialog').append(document.createElement('button'))")
    assert "button-name" in findings(page)[0]


def test_the_login_is_for_everybody_too(browser: Browser, server: Server) -> None:
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto(server.address)
    expect(page.get_by_label("Token")).to_be_focused()
    page.get_by_label("Token").fill("wrong")
    page.get_by_label("Token").press("Enter")
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    assert not findings(page)
    context.close()


@pytest.fixture(scope="module")
def phone(context: BrowserContext, browser: Browser) -> Iterator[BrowserContext]:
    """The same login on a small screen that is touched."""
    made = browser.new_context(
        viewport={"width": 360, "height": 700},
        device_scale_factor=2,
        has_touch=True,
        storage_state=context.storage_state(),
    )
    yield made
    made.close()


def test_everything_can_be_read_on_a_phone(
    visit: Watched, phone: BrowserContext, store: Store
) -> None:
    for path, words in views(store).items():
        if path == "/nowhere":
            continue
        page = visit(path, phone)
        expect(page.get_by_role("main")).to_contain_text(words)
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, f"{path} is {wider} pixels wider than the screen"
        if path.startswith("/subjects/session/"):
            for box in page.locator(".tree .pick input").all():
                place = box.bounding_box()
                assert place is not None
                assert place["x"] + place["width"] <= 340, "a row is wider than its frame"
            picture(page, "dashboard-phone")
            page.locator(".tree .row a.reason").first.tap()
            expect(page.get_by_label("Facts")).to_be_visible()
        page.close()
