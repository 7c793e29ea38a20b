"""`python -m agents.strategies` prints the catalogue as a page, which is the text of docs/reference/strategies.md."""

from __future__ import annotations

from agents.strategies import CATALOGUE, FAMILIES, Strategy
from agents.strategies.how_to import LANGUAGES
from agents.strategies.strategy import BOTTLENECKS

NAMES = {"cuda": "CUDA C++", "triton": "Triton", "cpp": "C++"}
INTRODUCTION = """# Strategies

<!-- Made by `python -m agents.strategies > docs/reference/strategies.md`; a test keeps it current. Change agents/strategies/ instead. -->

{count} ways to make a program faster, in {families} families. Planners choose from them, a diagnosis may recommend only those listed in its rules,
and the built-in compiler applies some of them. A ledger records the expected and the measured gain of each (the page *Knowledge > Strategies*).
A search on a plateau tries families other than those that gained nothing before it gives up.

These rules apply to all strategies:

- Each round applies one strategy, so that its gain can be measured separately.
- A strategy that keeps data for later is offered only if some data is used more than once.
- The vendor library's matmuls and convolutions stay, unless their time is far enough above the floor.
- A strategy that only fixes one fault is recommended only if the diagnosis found that fault.
- A strategy is not offered if the task's shapes or the program's kernels show that its *Not for* applies. Unknown facts rule nothing out.
- A first plan contains no strategy that improves an existing kernel, because there is none yet.
- Speed is measured, never assumed. A strategy that gained nothing is not tried again unchanged.
"""


def page() -> str:
    parts = [INTRODUCTION.format(count=len(CATALOGUE), families=len(FAMILIES))]
    parts.append("| bottleneck | strategies |\n|---|---|\n" + "\n".join(f"| {b} | {_answering(b)} |" for b in BOTTLENECKS if b != "none"))
    for family, about in FAMILIES.items():
        parts.append(f"## {family.capitalize()}: {about}")
        parts += [_entry(strategy) for strategy in CATALOGUE if strategy.family == family]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _answering(bottleneck: str) -> str:
    return ", ".join(f"[{s.name}](#{s.name})" for s in CATALOGUE if bottleneck in s.answers)


def _entry(strategy: Strategy) -> str:
    facts = [
        f"- **Pays off when** {strategy.applies}.",
        f"- **Effect:** {strategy.expectation}.",
        f"- **Not for:** {strategy.forbidden}.",
        f"- **Addresses:** {', '.join(strategy.answers)}" + (f"; **fixes:** {', '.join(strategy.cures)}" if strategy.cures else "") + ".",
        *([] if len(strategy.devices) == 2 else ["- For GPUs only."]),
        f"- References: {'; '.join(strategy.references)}.",
    ]
    ways = [f"**{NAMES[language]}.** {getattr(strategy, language)}" for language in LANGUAGES if getattr(strategy, language)]
    return "\n\n".join([f"### {strategy.name}", f"{strategy.title}.", "\n".join(facts), *ways])


if __name__ == "__main__":
    print(page(), end="")
