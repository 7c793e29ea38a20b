"""The glossary: at most twelve terms, explained in the help of every page and on one page of their own, and linked where they appear.

{% term "class" %}               link to the explanation of a term, worded as in the glossary
{% term "candidate" "Programs" %}   the same with other words
{% glossary "help" %}            all terms, with ids such as "help-class"

Modules of the pages use `term` of static/js/lib/terms.js.
"""

from __future__ import annotations

from dataclasses import dataclass

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@dataclass(frozen=True)
class Term:
    title: str
    text: str  # names in backquotes are shown as code


TERMS = {
    "task": Term("Task", "A model, with functions that return its inputs and its constructor's arguments, so that it can be run and checked."),
    "candidate": Term("Candidate", "A program that was written for a task. Each one is checked and measured; the best one is the result of the run."),
    "verifier": Term(
        "Verifier", "The process on a device's host that runs programs in a sandbox, compares their outputs with the model's and measures their time."
    ),
    "workflow": Term(
        "Workflow", "How the agents search for a faster program: who plans, who writes, and which attempts go further. `auto` chooses one."
    ),
    "speedup": Term(
        "Speedup",
        "Baseline time divided by program time, with its 95 % interval, as in 2.41× [2.36, 2.47]. Both are measured side by side on the same device. "
        "Green only if the lower bound is above 1.",
    ),
    "baseline": Term(
        "Baseline",
        "The unmodified model under PyTorch eager, `torch.compile`, its max-autotune, or in a CUDA graph. The first figure is over the fastest of "
        "those that were measured.",
    ),
    "confirmed": Term(
        "Confirmed, provisional",
        "Confirmed: a full measurement with fresh seeds, against all baselines. Provisional: a quick one, against eager only.",
    ),
    "class": Term(
        "Class", "How much of a program's time its own kernels take: at least half (custom), at least a tenth (mixed), less (orchestration)."
    ),
    "precision": Term("Precision", "The error bound that a program must keep, the same as its baselines'. `fp32-strict` is fp32 without TF32."),
    "floor": Term("Floor", "The time that the device needs at least for the task's memory traffic and arithmetic, whatever the program."),
    "flags": Term(
        "⚑ Flags",
        "Warnings to readers of a result, such as trivial (the task proves little), stochastic (it uses random numbers), bounded (a call takes under "
        "1 ms, so launch overhead counts) and earlier clock (ranked separately).",
    ),
    "fast_p": Term("fast_p", "The share of all tasks that are solved and more than p times as fast as the baseline."),
}


@register.simple_tag
def term(key: str, words: str = "") -> SafeString:
    """Return a link to the term. On the same page, static/js/base.js opens the help at the term instead.

    Raises:
        KeyError: the glossary has no such term.
    """
    return format_html('<a class="term" href="{}#term-{}" data-term="{}">{}</a>', reverse("ui:glossary"), key, key, words or TERMS[key].title)


@register.inclusion_tag("partials/glossary.html")
def glossary(prefix: str) -> dict[str, object]:
    return {"terms": TERMS, "prefix": prefix}
