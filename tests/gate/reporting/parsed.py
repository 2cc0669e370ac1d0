"""A page as a browser would read it, without one: its elements, and the data that its script gets."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "input", "br", "wbr", "img", "path", "circle"}


@dataclass
class Element:
    """One element with its attributes, its children and texts in order."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag: str = "", **attributes: str) -> list[Element]:
        """Elements below it, in order, by tag and attributes (``aria_label`` for ``aria-label``)."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        found = []
        for child in self.children:
            if isinstance(child, Element):
                fits = tag in ("", child.tag) and all(child.attributes.get(n) == v for n, v in wanted.items())
                found += [child] * fits + child.all(tag, **attributes)
        return found

    def one(self, tag: str = "", **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def parsed(page: str) -> Element:
    """The page's elements; an element that isn't closed is an error."""
    builder = _Builder()
    builder.feed(page)
    builder.close()
    assert [e.tag for e in builder._open] == [""]
    return builder.root


def details_of(page: Element) -> list[dict[str, Any]]:
    """The values of each case's view."""
    texts = json.loads(page.one("script", id="details").text)
    return [json.loads(zlib.decompress(base64.b64decode(text))) for text in texts]
