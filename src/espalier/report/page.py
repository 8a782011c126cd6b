"""The shell of every HTML page: one file, nothing from the network, light and dark.

It must not know what a page shows. Text goes through `escape`; a page's body, style and script are
markup and trusted.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

# Characters that no HTML text may hold, and halves of pairs, which no file can be written with.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def escape(text: object) -> str:
    """Text as HTML, also inside quoted attributes; what HTML cannot hold becomes U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", html.escape(str(text), quote=True)).replace("\r", "&#13;")


def json_block(element_id: str, value: Any) -> str:
    """A `<script type="application/json">` element that no text in `value` can end early."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{escape(element_id)}">{text}</script>'


@cache
def asset(name: str) -> str:
    """A file of this package's `assets` folder, such as "page.css"."""
    return (files("espalier.report") / "assets" / name).read_text(encoding="utf-8")


def page(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A whole HTML document with the shared look (assets/page.css).

    `title` is text; `body` is what stands in `<main>`. The document's policy allows no request at
    all and no script but `script`, so text that should slip through as markup still runs nothing.
    Colours and parts to build from (`.card`, `.note`, `.error`, `.legend`, tables) are listed in
    assets/page.css.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{asset('page.css')}{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n"
        + (f"<script>{script}</script>\n" if script else "")
        + "</body>\n</html>\n"
    )
