"""The pages: what they show, and what they never do."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from tests.server.conftest import Server, Starter, add

from holdfast.store import Store

EVIL = "<script>alert(1)</script><img/src=x/onerror=alert(1)>\"'&amp;"


@pytest.fixture
def server(start: Starter) -> Server:
    return start()


class Page(HTMLParser):
    """The tags, links and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


def page(server: Server, path: str, status: int = 200) -> Page:
    with server.client(server.token, Accept="text/html") as client:
        answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert (server.token or "") not in answer.text
    read = Page(answer.text)
    assert not {"script", "img", "iframe", "object", "link"} & set(read.tags)
    assert not read.handlers
    assert all(link.startswith("/") for link in read.links), "a page refers to nothing outside"
    return read


def test_the_policy_allows_the_style_that_the_page_has(empty: Server) -> None:
    with empty.client() as client:
        answer = client.get("/login")
    style = re.search("<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in answer.headers["content-security-policy"]


def test_an_empty_store_says_what_to_do(server: Server) -> None:
    read = page(server, "/plain")
    assert "Nothing is frozen yet" in read.text
    code = re.search(r"from holdfast import.*?commit\(\)", read.text, re.DOTALL)
    assert code
    exec(compile(code[0], "<page>", "exec"), {})
    assert "1 subject" in page(server, "/plain").text


def test_subjects_lead_to_lineages_and_checkpoints(server: Server, store: Store) -> None:
    first = add(store, "state/demo", "the beginning", b"x" * 1500)
    add(store, "state/demo", "the middle")
    store.rollback("state/demo")
    store.fork(first, "copy")
    read = page(server, "/plain")
    assert "2 subjects" in read.text
    assert "1.5 kB" in read.text
    assert {"/plain/subjects/state/demo", "/plain/subjects/state/copy"} <= set(read.links)

    demo = page(server, "/plain/subjects/state/demo")
    for words in ("the beginning", "the middle", "rollback", "head", "forked to ", "●", "○"):
        assert words in demo.text
    assert "/plain/subjects/state/copy" in demo.links
    assert f"/plain/checkpoints/{first}" in demo.links
    assert "forked from " in page(server, "/plain/subjects/state/copy").text

    checkpoint = page(server, f"/plain/checkpoints/{first}")
    for words in ("the beginning", "content", "1.5 kB", first):
        assert words in checkpoint.text
    assert "Log out" in checkpoint.text
    child = page(server, f"/plain/checkpoints/{store.list('state/demo')[1].id}")
    assert f"Parents{store.resolve(first).short}" in child.text
    assert first not in child.text
    for link in {*read.links, *demo.links, *checkpoint.links} - {"/logout"}:
        page(server, link)


def test_what_others_wrote_stays_text(server: Server, store: Store) -> None:
    name = "<script>alert(1)</script>&\"'#%"
    with store.draft(f"state/{name}", reason=EVIL, stage=EVIL, tags={"t<b>": EVIL}) as draft:
        draft.put("part<script>", b"x")
        made = draft.commit()
    first = page(server, "/plain")
    assert name in first.text
    (link,) = [link for link in first.links if link.startswith("/plain/subjects/")]
    read = page(server, link)
    assert name in read.text
    assert EVIL in read.text
    read = page(server, f"/plain/checkpoints/{made.id}")
    assert EVIL in read.text
    assert "part<script>" in read.text


def test_the_report_of_a_session(server: Server, store: Store) -> None:
    items = [
        {"name": "data", "outcome": "exact", "tier": "cloudpickle", "size_bytes": 1500},
        {"name": EVIL, "outcome": "placeholder", "reason": EVIL},
    ]
    with store.draft("session/demo") as draft:
        draft.put("report", {"items": items}, split="structure")
        made = draft.commit()
    read = page(server, f"/plain/checkpoints/{made.id}")
    for words in ("Report: 2 names", "dataexactcloudpickle1.5 kB", "placeholder", EVIL):
        assert words in read.text
    with server.client(server.token) as client:
        report = client.get(f"/v1/checkpoints/{made.id}").json()["report"]
    assert [each["outcome"] for each in report] == ["exact", "placeholder"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/plain/subjects/state/nothing", 404),
        ("/plain/subjects/nokind/x", 422),
        ("/plain/checkpoints/nothing", 404),
        ("/plain/checkpoints/<script>", 404),
        ("/nothing", 404),
        ("/logout", 405),
    ],
)
def test_errors_are_pages_too(empty: Server, path: str, status: int) -> None:
    page(empty, path, status)


def test_the_login_page_is_as_safe(empty: Server) -> None:
    with empty.client() as client:
        answer = client.get("/login", params={"next": '/"><script>'})
    assert "script" not in Page(answer.text).tags
    assert "unsafe" not in answer.headers["content-security-policy"]
