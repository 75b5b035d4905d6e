"""SVG as text for a page. Every value is escaped."""

from __future__ import annotations

from markupsafe import Markup, escape

WIDTH = 960.0
"""The width of all charts in their own units; the page scales them."""


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element. `class_` means `class`; underscores become dashes; None is omitted.

    Floats have one decimal, a tenth of a pixel.
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(_name(key), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    opened = Markup("<") + Markup(name) + written  # noqa: S704 - names are ours, values are escaped
    if not children:
        return opened + Markup("/>")
    inner = Markup("").join(escape(child) for child in children)
    return opened + Markup(">") + inner + Markup("</") + Markup(name) + Markup(">")  # noqa: S704 - as above


def drawing(key: str, title: str, description: str, height: float, *parts: Markup) -> Markup:
    """Return a chart, with title and description for screen readers."""
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", description, id=f"{key}-desc"),
        *parts,
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        class_="drawing",
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> Markup:
    """Return text at a position."""
    return tag("text", words, x=x, y=y, class_=kind or None, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> Markup:
    """Return a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def box(
    x: float, y: float, width: float, height: float, kind: str, tooltip: str = "", round_: float = 0
) -> Markup:
    """Return a rectangle; `tooltip` shows when the pointer rests on it."""
    inner = (tag("title", tooltip),) if tooltip else ()
    return tag(
        "rect",
        *inner,
        x=x,
        y=y,
        width=max(0.0, width),
        height=max(0.0, height),
        class_=kind,
        rx=round_ or None,
    )


def _name(key: str) -> str:
    if key == "viewBox":
        return key
    return key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
