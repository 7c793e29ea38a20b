"""Comments as HTML: ordinary comments, and attempted attacks."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest

from webapp.review.markdown import html_of, mentioned


class Elements(HTMLParser):
    """Returns the elements that a browser would create from a text, with their attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.all: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))


def test_what_people_write():
    made = html_of("**bold** `code`\nnext line\n\n- one\n- two\n\nhttps://example.org/a")
    assert "<strong>bold</strong> <code>code</code><br>" in made and "<li>one</li>" in made
    assert '<a href="https://example.org/a" rel="nofollow noopener noreferrer">' in made


def test_code_has_colours():
    assert '<span class="kr">__global__</span>' in html_of("```cuda\n__global__ void k() {}\n```")
    assert "&lt;b&gt;" in html_of("```nonsense\n<b>\n```")


def test_only_people_who_are_there_are_marked():
    made = html_of("@Ada and @bob: `@ada` mail@ada.org https://x.org/@ada", frozenset({"ada"}))
    assert made.count('<span class="mention">') == 1 and '<span class="mention">@Ada</span>' in made


def test_mentions_stand_outside_of_code():
    assert mentioned("@a.b-c, @Bob. `@no` and x@no\n\n    @no\n\n```\n@no\n```\n> @quoted") == ["a.b-c", "bob", "quoted"]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](data:text/html,<script>1</script>)",
        "![x](https://tracker.example/pixel)",
        "[x]: javascript:alert(1)\n\n[x]",
        '<a href="#" style="position:fixed" onclick="x()">a</a>',
        "# Heading",
        "&#60;script&#62;alert(1)&#60;/script&#62;",
        '```"><script>alert(1)</script>\nx\n```',
    ],
)
def test_nothing_but_text_gets_through(text):
    found = Elements(html_of(text))
    assert {name for name, _ in found.all} <= {"p", "strong", "a", "code", "pre"}
    for _, attributes in found.all:
        assert set(attributes) <= {"href", "rel", "class", "tabindex"}
        assert attributes.get("href", "https://").startswith("https://")


def test_depth_has_an_end():
    assert len(html_of(">" * 3000 + " deep")) < 100_000


@pytest.mark.parametrize("language", ["python", "cuda", "cpp", "json", "bash", "llvm", "console", "makefile", "elpi", "ini"])
@pytest.mark.parametrize("unit", ["\n \t", "a::", "(", "#if 0\n", '"\\'])
def test_no_comment_costs_seconds(language, unit):
    """Rendering must stay fast for every language that a block may name, and for many blocks."""
    block = f"```{language}\n{(unit * 8000)[:7900]}\n```\n\n"
    html_of.cache_clear()
    begin = time.process_time()
    made = html_of(block * 8)
    assert time.process_time() - begin < 1.5 and made.count("<pre") == 8


def test_languages_that_are_not_known_stay_plain():
    assert "<span" not in html_of("```llvm\ndefine i32 @main() { ret i32 0 }\n```") and "<span" in html_of("```py\nx = 1\n```")
