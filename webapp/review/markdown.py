"""Renders comments as safe HTML: Markdown without raw HTML, images or headings, with highlighted code and marked mentions."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from functools import lru_cache

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import format
from pygments.formatters import HtmlFormatter

from webapp.ui.colours import LONGEST, TakesTooLong, lexer_of, within

# A mention cannot start in the middle of a word, address or path, as in "a@b.c" or "x/@y".
MENTION = re.compile(r"(?<![\w@./-])@([\w](?:[\w.+-]*\w)?)")
TAGS = {"p", "br", "strong", "em", "s", "code", "pre", "span", "a", "ul", "ol", "li", "blockquote", "hr", "table", "thead", "tbody", "tr", "th", "td"}
COLOURING = 0.25  # time limit in seconds for all code blocks of a comment
_LINES = HtmlFormatter(nowrap=True)
_until = threading.local()  # deadline for highlighting the comment that this thread is rendering


def _coloured(code: str, language: str, _attributes: str) -> str:
    lexer = lexer_of(language) if len(code) <= LONGEST else None
    if lexer is None:
        return ""  # the renderer then escapes the text
    try:
        html: str = format(list(within(lexer.get_tokens(code), getattr(_until, "deadline", 0.0))), _LINES)
        return html
    except TakesTooLong:
        return ""


def _mark_people(state: StateCore) -> None:
    """Marks @name in running text if the name belongs to a person, but never in code or in a link's URL."""
    people = state.env["people"]
    for block in state.tokens:
        if block.type != "inline" or not people:
            continue
        children: list[Token] = []
        for token in block.children or []:
            children += _split(token, people) if token.type == "text" else [token]
        block.children = children


def _split(token: Token, people: frozenset[str]) -> list[Token]:
    parts, at = [], 0
    for found in MENTION.finditer(token.content):
        if found[1].casefold() not in people:
            continue
        parts += [_token("text", token.content[at : found.start()], token.level), _token("mention", found[0], token.level)]
        at = found.end()
    return [*parts, _token("text", token.content[at:], token.level)] if parts else [token]


def _token(kind: str, content: str, level: int) -> Token:
    return Token(kind, "", 0, content=content, level=level)


def _mention(_renderer: RendererProtocol, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: EnvType) -> str:
    return f'<span class="mention">{escape(tokens[index].content)}</span>'


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": True, "breaks": True, "highlight": _coloured})
    parser.enable(["table", "strikethrough", "linkify"]).disable(["image", "html_block", "html_inline"])
    parser.core.ruler.push("people", _mark_people)
    parser.add_render_rule("mention", _mention)
    # A heading within a comment would break the outline of the page around it.
    parser.add_render_rule("heading_open", lambda self, tokens, index, options, env: "<p><strong>")
    parser.add_render_rule("heading_close", lambda self, tokens, index, options, env: "</strong></p>\n")
    return parser


_MARKDOWN = _parser()


@lru_cache(maxsize=4096)
def html_of(text: str, people: frozenset[str] = frozenset()) -> SafeString:
    """Renders a comment. Mentions of the names in `people` (casefolded) are marked."""
    _until.deadline = time.monotonic() + COLOURING
    made = _MARKDOWN.render(text, {"people": people})
    clean = nh3.clean(
        made,
        tags=TAGS,
        attributes={"a": {"href", "title"}, "span": {"class"}, "code": {"class"}, "th": {"align"}, "td": {"align"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="nofollow noopener noreferrer",
    )
    # Scrollable elements must be reachable with the keyboard.
    for tag in ("pre", "table"):
        clean = clean.replace(f"<{tag}>", f'<{tag} tabindex="0">')
    return mark_safe(clean)  # noqa: S308 - cleaned by an allow-list


@lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """Returns the comment's text on one line, for lists."""
    said: list[str] = []
    for block in _MARKDOWN.parse(text, {"people": frozenset()}):
        if block.type == "inline":
            said += [token.content if token.type in ("text", "code_inline") else " " for token in block.children or []] + [" "]
        elif block.type in ("fence", "code_block"):
            said += [block.content, " "]
    return " ".join("".join(said).split())


def mentioned(text: str) -> list[str]:
    """Returns the names mentioned in a text outside code: casefolded, in order, and without duplicates."""
    names: dict[str, None] = {}
    for block in _MARKDOWN.parse(text, {"people": frozenset()}):
        for token in (block.children or []) if block.type == "inline" else []:
            if token.type == "text":
                names |= dict.fromkeys(name.casefold() for name in MENTION.findall(token.content))
    return list(names)
