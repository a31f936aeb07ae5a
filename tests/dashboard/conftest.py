"""A real server, and a real browser that is logged in to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright
from tests.server.conftest import Server, Starter

from holdfast.store import Store, open_store

PICTURES = Path(__file__).resolve().parents[2] / "docs/images"
PATIENCE = 30_000  # milliseconds: others use this machine, too
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: make setup-test installs it"
    with sync_playwright() as play:
        launched = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def store(home: Path) -> Iterator[Store]:
    """The store that the module's server serves."""
    before = os.environ.get("HOLDFAST_HOME")
    os.environ["HOLDFAST_HOME"] = str(home)
    with open_store() as opened:
        yield opened
    if before is None:
        del os.environ["HOLDFAST_HOME"]
    else:
        os.environ["HOLDFAST_HOME"] = before


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    """One server for the module, with the sandboxes that need no privileges."""
    with Starter(HOLDFAST_HOME=str(home), XDG_CONFIG_HOME=str(home)) as starter:
        yield starter("--engine", "process")


@pytest.fixture(scope="module")
def context(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    """A browser that has logged in, as a person does."""
    made = browser.new_context(viewport={"width": 1000, "height": 680}, accept_downloads=True)
    made.set_default_timeout(PATIENCE)
    page = made.new_page()
    page.goto(server.address)
    assert page.url == f"{server.address}/login?next=/"
    page.get_by_label("Token").fill(server.token or "")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{server.address}/")
    page.close()
    yield made
    made.close()


Open = Callable[[str], Page]


class Watched:
    """Pages, and whatever went wrong in them."""

    def __init__(self, context: BrowserContext, server: Server) -> None:
        self._context, self._server = context, server
        self.troubles: list[str] = []
        self.addresses: list[str] = []

    def __call__(self, path: str, context: BrowserContext | None = None) -> Page:
        page = (context or self._context).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        page.on("console", self._heard)
        page.on("request", lambda request: self.addresses.append(request.url))
        page.on("websocket", lambda socket: self.addresses.append(socket.url))
        page.goto(self._server.address + path)
        return page

    def _heard(self, message: object) -> None:
        text = str(getattr(message, "text", ""))
        # A browser tells of every refusal; that the page shows it is for the tests to see.
        if getattr(message, "type", "") == "error" and "with a status of 4" not in text:
            self.troubles.append(f"console: {text}")


@pytest.fixture
def visit(context: BrowserContext, server: Server) -> Iterator[Watched]:
    """Open pages of the server. Nothing may go wrong in them, and nothing secret be in a URL."""
    watched = Watched(context, server)
    yield watched
    for page in context.pages:
        page.close()
    assert not watched.troubles
    own = server.address.removeprefix("http://")
    assert not [each for each in watched.addresses if own not in each], "it reached out"
    assert not [each for each in watched.addresses if str(server.token) in each]


def type_in(page: Page, code: str) -> None:
    """Run code in a console."""
    box = page.get_by_role("textbox", name="Code")
    box.fill(code)
    box.press("Control+Enter")


def rows(section: Locator) -> list[list[str]]:
    """The cells of a table, as they are read."""
    return [row.locator("td").all_inner_texts() for row in section.locator("tbody tr").all()]


def holdfast(home: Path, *arguments: str) -> str:
    """The command line on the same home, as somebody else at another terminal."""
    done = subprocess.run(
        [Path(sys.executable).with_name("holdfast"), *arguments],
        env={**os.environ, "HOLDFAST_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def picture(page: Page, name: str) -> None:
    """With HOLDFAST_PICTURES=1 what is seen becomes a picture of the docs."""
    if os.environ.get("HOLDFAST_PICTURES") == "1":
        page.wait_for_timeout(300)
        # Where the tests keep their store is of no interest.
        page.locator("[data-store]").evaluate_all(
            "(found) => found.forEach((each) => { each.textContent = '~/.holdfast/store'; })"
        )
        file = PICTURES / f"{name}.png"
        page.screenshot(path=file, animations="disabled")
        from PIL import Image

        Image.open(file).convert("RGB").quantize(96).save(file, optimize=True)
