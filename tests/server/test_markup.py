"""HTML that is escaped by construction."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from holdfast.server.markup import element, group


class _Names(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text("<>&\"'/ =scriptonload\n!-", max_size=60))
def test_text_stays_text(text: str) -> None:
    seen = _Names(element("p", text, title=text).html)
    assert seen.names == ["p"]
    assert seen.attributes == [("title", text)]
    assert seen.text == text


def test_elements() -> None:
    assert element("a", "x", href="/?a&b", class_="y").html == '<a href="/?a&amp;b" class="y">x</a>'
    assert element("input", required=True, disabled=False).html == "<input required>"
    assert group("a", None, element("b", "<")).html == "a<b>&lt;</b>"
