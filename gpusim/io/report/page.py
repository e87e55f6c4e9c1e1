"""The page: its template, style, script and content in one self-contained file.

Names of a trace reach the page as text: JSON in a block that no browser runs, then text of an element. The security
policy of the page allows only its own script.
"""

from __future__ import annotations

import base64
import hashlib
import html
from importlib.resources import files

from gpusim.io.report.content import Content, content_text

IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}  # in JSON only ever inside of texts


def page(content: Content) -> str:
    """The page as HTML; the same content gives the same bytes."""
    beside = (files(__package__).joinpath(f"page.{ending}") for ending in ("css", "js", "html"))
    style, script, frame = (part.read_text(encoding="utf-8") for part in beside)
    data = content_text(content)
    for character, escaped in IN_SCRIPT.items():
        data = data.replace(character, escaped)
    parts = {
        "POLICY": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'",
        "TITLE": html.escape(f"{content.trace} on {content.gpu}"),
        "STYLE": style,
        "SCRIPT": script,
        "CONTENT": data,
    }
    pieces = frame.split("%%")  # text and names of parts in turns, so that no part is looked for in another
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
