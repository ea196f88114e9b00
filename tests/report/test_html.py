"""HTML by construction: nothing gets through unescaped."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgmix.report.html import Html, data_block, element, join


class Seen(HTMLParser):
    """What a browser would read."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(TEXTS, TEXTS)
def test_any_text_is_read_as_that_text(text: str, title: str) -> None:
    seen = Seen(element("b", text, title=title))
    assert seen.tags == ["b"]
    assert seen.text == text
    assert seen.attributes == {"title": title}


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_any_data_survives_its_block(content: object) -> None:
    block = data_block("x", content)
    inside = block.removeprefix('<script type="application/json" id="x">').removesuffix("</script>")
    assert "<" not in inside
    assert json.loads(inside) == content


def test_numbers_that_json_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        data_block("x", [float("nan")])


def test_html_is_not_escaped_twice_and_void_elements_do_not_end() -> None:
    assert element("p", element("br"), Html("&amp;")) == "<p><br>&amp;</p>"
    assert (
        element("input", type="search", hidden=True, value=None, class_="x") == '<input type="search" hidden class="x">'
    )
    assert join([[], ["a", ["<"]]]) == "a&lt;"
