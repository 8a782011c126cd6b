"""The shell of pages: whatever text they show, it stays text, and nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.report.page import asset, escape, json_block, page

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!-- ]]> &amp; &#60; -->",
    "'onmouseover='alert(1)",
    "</title></style></textarea>",
]


class Reader(HTMLParser):
    """Tags with attributes, and the text, as a browser would read them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.one_of(st.text(max_size=40), st.sampled_from(HOSTILE)))
def test_escaped_text_is_read_back_as_text(text: str) -> None:
    reader = Reader(f'<p title="{escape(text)}">{escape(text)}</p>')
    shown = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]", "\ufffd", text)
    assert [tag for tag, _ in reader.tags] == ["p"]
    assert reader.text == shown
    assert reader.tags[0][1]["title"] == shown


def test_half_of_a_pair_can_be_written() -> None:
    assert escape("a\ud800b") == "a\ufffdb"


@pytest.mark.parametrize("text", HOSTILE)
def test_json_cannot_end_its_element(text: str) -> None:
    block = json_block("data", {"text": text})
    reader = Reader(block)
    assert [tag for tag, _ in reader.tags] == ["script"]
    assert json.loads(reader.text) == {"text": text}


def test_page_has_title_body_style_and_script() -> None:
    html = page("a <b>", "<p>body</p>", style=".x { color: red }", script="run('&');")
    reader = Reader(html)
    assert "<title>a &lt;b&gt;</title>" in html
    assert "<main>\n<p>body</p>\n</main>" in html
    assert ".x { color: red }</style>" in html
    assert "<script>run('&');</script>" in html
    digest = base64.b64encode(hashlib.sha256(b"run('&');").digest()).decode()
    (policy,) = [attrs["content"] for _, attrs in reader.tags if "http-equiv" in attrs]
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )


def test_page_names_nothing_outside_itself() -> None:
    html = page("t", "", style=asset("run.css"), script=asset("run.js"))
    assert not re.search(r"https?:|//[a-z]|@import|url\(", re.sub(r"//.*", "", html))
    assert not re.search(r"""\b(src|href)=""", html)
    assert "prefers-color-scheme: dark" in html
