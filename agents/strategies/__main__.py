"""`python -m agents.strategies` prints the catalogue as a page, which is the text of docs/reference/strategies.md."""

from __future__ import annotations

from agents.strategies import CATALOGUE, FAMILIES, Strategy
from agents.strategies.how_to import LANGUAGES
from agents.strategies.strategy import BOTTLENECKS

NAMES = {"cuda": "CUDA C++", "triton": "Triton", "cpp": "C++"}
INTRODUCTION = """# Strategies

<!-- Made by `python -m agents.strategies > docs/reference/strategies.md`; a test keeps it current. Change agents/strategies/ instead. -->

{count} ways to make a program faster, in {families} families. Planners choose from them, a diagnosis may only advise what its rules allow,
the built-in compiler carries some of them out, and a ledger keeps what each was expected to bring against what it did (the page
*Knowledge > Strategies*). When a search stands still, it leaves the families that brought nothing before it gives up.

Rules for all of them:

- One method a round: a program changes by one strategy, so that what it brought can be told.
- Nothing that keeps data for later without something that is used again ("reuse source").
- The vendor's products and convolutions stay, unless their time leaves room above the floor.
- A cure is advised only where the diagnosis has named its fault.
- A strategy whose *Not for* follows from the task's shapes or from the program's kernels is not offered; what is unknown rules nothing out.
- A first plan offers nothing that mends a kernel, because there is none yet.
- What is faster is measured, never assumed; what was tried and brought nothing is not tried again as it was.
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
        f"- **Pays where** {strategy.applies}.",
        f"- **Brings** {strategy.expectation}.",
        f"- **Not for** {strategy.forbidden}.",
        f"- **Answers** {', '.join(strategy.answers)}" + (f"; **undoes** {', '.join(strategy.cures)}" if strategy.cures else "") + ".",
        *([] if len(strategy.devices) == 2 else ["- For GPUs only."]),
        f"- References: {'; '.join(strategy.references)}.",
    ]
    ways = [f"**{NAMES[language]}.** {getattr(strategy, language)}" for language in LANGUAGES if getattr(strategy, language)]
    return "\n\n".join([f"### {strategy.name}", f"{strategy.title}.", "\n".join(facts), *ways])


if __name__ == "__main__":
    print(page(), end="")
