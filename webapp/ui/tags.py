"""Template tags of the design system. They are builtins (settings.TEMPLATES), so no page needs `{% load %}`.

{% status "passed" %}            chip for a verdict, a run's state or an outcome: colour, sign and word
{% run_status run %}             the same for a run: its outcome once it has finished
{% speedup value %}              figure with interval; value is {ratio, low, high}, an Interval, or None
{% speedup value vs="eager" %}   the same with the baseline of the comparison
{% row_headline run as found %}  headline of a run in a list, input of the next tag
{% headline found %}             headline speedup of a run or candidate with its baseline, then over eager (webapp/runs/headline.py)
{% whisker value scale %}        the interval drawn on a common log scale (`scale` from `whisker_scale`)
{% device_tag "cpu" "AMD ..." %} device on which a number was measured
{% class_tag "custom" 0.97 %}    program class with the share of its own kernels
{% ago moment %}                 relative time that the page keeps current
{% problems list %}              error box: place, cause, what to do (verifier.source.Problem or dicts)
{% progress 12 20 %}             elapsed time, with the usual duration

webapp/ui/figures.py has the filters that write figures and names.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from django import template
from django.utils import timezone

from webapp.environment import manage_line
from webapp.ui.figures import seconds, short_device, times

if TYPE_CHECKING:
    from webapp.runs.headline import Headline
    from webapp.runs.models import Run, Verification

register = template.Library()

LOOPBACK = ("127.0.0.1", "::1")

# name: (tone, sign, word). The tones are .chip classes in static/css/marks.css.
STATUSES: dict[str, tuple[str, str, str]] = {
    # verdicts
    "passed": ("ok", "✓", "passed"),
    "wrong_result": ("bad", "✕", "wrong result"),
    "build_failed": ("bad", "✕", "build failed"),
    "crashed": ("bad", "✕", "crashed"),
    "timed_out": ("bad", "✕", "timed out"),
    "rejected": ("bad", "⊘", "rejected"),
    "inconclusive": ("warn", "~", "inconclusive"),
    "infrastructure_error": ("warn", "!", "host error"),
    # states of a run
    "queued": ("idle", "○", "queued"),
    "running": ("info live", "●", "running"),
    "paused": ("warn", "‖", "paused"),
    "finished": ("idle", "✓", "finished"),
    # outcomes of a run
    "improved": ("ok", "▲", "improved"),
    "matched": ("idle", "=", "matched"),
    "failed": ("bad", "✕", "failed"),
    "cancelled": ("idle", "–", "cancelled"),
    "out_of_budget": ("warn", "◔", "out of budget"),
    # spans and stages
    "ok": ("ok", "✓", "ok"),
    "skipped": ("idle", "–", "skipped"),
    "started": ("info live", "●", "running"),
    "progress": ("info live", "●", "running"),
    # training runs and their rollouts
    "stopped": ("idle", "–", "stopped"),
    "silent": ("warn", "!", "no news"),
    "no_sample": ("idle", "–", "no sample"),
    # devices, and whether something is present
    "online": ("ok", "●", "online"),
    "busy": ("info", "●", "busy"),
    "offline": ("idle", "○", "offline"),
    "available": ("ok", "✓", "available"),
    "missing": ("warn", "!", "missing"),
    "unusable": ("bad", "✕", "unusable"),
    "needs a sandbox": ("bad", "✕", "needs a sandbox"),
    "absent": ("idle", "–", "not here"),
    # people's verdicts on a candidate
    "accepted": ("ok", "✓", "accepted"),
    "questioned": ("warn", "?", "questioned"),
    "hack": ("bad", "✕", "hack"),
    "retracted": ("bad", "⊘", "retracted"),
    # results on the leaderboard
    "published": ("info", "◉", "published"),
    "private": ("idle", "○", "team only"),
}

CLASSES = {
    "custom": "its own kernels take at least half of its time on the device",
    "mixed": "its own kernels take at least a tenth of its time on the device",
    "orchestration": "mostly library kernels, rearranged: its own kernels take less than a tenth",
}

FLAGS = {
    "trivial": "this task proves little: a constant, the mean, an echo or an fp16 cast would pass",
    "stochastic": "this task draws random numbers, so equal results prove less",
    "narrow": "this task only works with its own inputs, so a program specialized to them would pass",
    "bounded": "Under 1 ms, timing is only indicative: launch overhead is part of the score.",
    "earlier clock": "measured with an earlier clock: not comparable with current results, so it is ranked separately",
    "findings": "the integrity checks found something that a reviewer should read: see the evidence",
    "no sandbox": "measured without bubblewrap: plain process isolation",
    "seeded": "weights were not loaded; both sides used the same seed",
}


class Figure(TypedDict):
    ratio: float
    low: float | None
    high: float | None


def figure(value: Any) -> Figure | None:
    """Return {ratio, low, high} of any value that has all three, or None."""
    if value is None or value == "":
        return None
    if isinstance(value, dict):
        if value.get("ratio") is None:
            return None
        return {"ratio": value["ratio"], "low": value.get("low"), "high": value.get("high")}
    if isinstance(value, (int, float)):
        return {"ratio": float(value), "low": None, "high": None}
    return {"ratio": value.ratio, "low": value.low, "high": value.high}


@register.inclusion_tag("partials/status.html")
def status(name: str, title: str = "") -> dict[str, Any]:
    tone, sign, word = STATUSES.get(name, ("idle", "·", str(name or "unknown").replace("_", " ")))
    return {"tone": tone, "sign": sign, "word": word, "title": title}


@register.inclusion_tag("partials/status.html")
def run_status(run: Run) -> dict[str, Any]:
    return status(run.outcome if run.state == "finished" and run.outcome else run.state, run.reason)


@register.simple_tag
def row_headline(run: Run) -> Headline:
    """Return the headline of a run in a list."""
    from webapp.runs.headline import of_row  # the app is not loaded yet when this library is imported

    return of_row(run)


@register.simple_tag
def verification_headline(row: Verification | None) -> Headline:
    """Return the headline of one verification."""
    from webapp.runs.headline import of_verification  # as above

    return of_verification(row)


@register.inclusion_tag("partials/headline.html")
def headline(found: Any, brief: bool = False) -> dict[str, Any]:
    """Show a headline (`runs.headline`).

    The headline names the best baseline and gives the speedup over it with its interval. `brief` shows only that figure, for a table.
    """
    return {"found": found, "brief": brief}


@register.inclusion_tag("partials/status.html")
def run_end(run: Run) -> dict[str, Any]:
    """Return a run's state for its own page. The outcome appears next to the figure, so this shows only outcomes that cut the run short."""
    if run.state != "finished":
        return status(run.state)
    return status(run.outcome if run.outcome in ("cancelled", "out_of_budget") else "finished")


@register.inclusion_tag("partials/speedup.html", name="speedup")
def speedup_tag(value: Any, vs: str = "") -> dict[str, Any]:
    found = figure(value)
    if found is None:
        return {"figure": None}
    low, high = found["low"], found["high"]
    tone = "faster" if low is not None and low > 1 else "slower" if high is not None and high < 1 else ""
    said = {"faster": "faster", "slower": "slower"}.get(tone, "no significant difference")
    return {
        "figure": True,
        "ratio": times(found["ratio"]),
        "low": low and times(low),
        "high": high and times(high),
        "tone": tone,
        "said": said,
        "vs": vs,
    }


def whisker_scale(values: list[Any]) -> tuple[float, float]:
    """Return the scale for `whisker`: (lowest, highest) over all intervals, including 1 and a margin."""
    found = [f for f in map(figure, values) if f]
    low = min([f["low"] or f["ratio"] for f in found] + [1.0])
    high = max([f["high"] or f["ratio"] for f in found] + [1.0])
    margin = (high / low) ** 0.06 if high > low else 1.1
    return low / margin, high * margin


@register.inclusion_tag("partials/whisker.html")
def whisker(value: Any, scale: tuple[float, float]) -> dict[str, Any]:
    found = figure(value)
    if found is None:
        return {"figure": None}
    low, high = math.log(scale[0]), math.log(scale[1])

    def at(ratio: float) -> float:
        return round(4 + 152 * (math.log(ratio) - low) / (high - low), 1)

    least, most = found["low"] or found["ratio"], found["high"] or found["ratio"]
    return {
        "figure": True,
        "one": at(1.0),
        "left": at(least),
        "right": max(at(most), at(least) + 0.5),
        "dot": at(found["ratio"]),
        "tone": "faster" if least > 1 else "",
        "said": f"{times(found['ratio'])} times, interval {times(least)} to {times(most)}",
    }


@register.inclusion_tag("partials/device_tag.html")
def device_tag(kind: str, name: str = "") -> dict[str, Any]:
    """Render the tag. `kind` is "cpu", "cuda" or a device such as "cuda:0". `name` has the format of Report.environment.device_name."""
    family = str(kind or "").partition(":")[0]
    return {"family": family, "label": short_device(name) or {"cpu": "CPU", "cuda": "CUDA"}.get(family, kind), "name": name or kind}


@register.inclusion_tag("partials/class_tag.html")
def class_tag(name: str, share: float | None = None) -> dict[str, Any]:
    return {"name": name, "title": CLASSES.get(name, ""), "share": None if share is None else f"{share * 100:.0f} %"}


@register.inclusion_tag("partials/flag.html")
def flag(name: str) -> dict[str, Any]:
    return {"name": name, "title": FLAGS.get(name, "")}


@register.inclusion_tag("partials/ago.html")
def ago(moment: datetime | None) -> dict[str, Any]:
    if not moment:
        return {"moment": None}
    seconds = max(0, round((timezone.now() - moment).total_seconds()))
    # Keep the wording identical to static/js/lib/ago.js.
    if seconds < 10:
        text = "just now"
    elif seconds < 60:
        text = f"{seconds} s ago"
    elif seconds < 3600:
        text = f"{seconds // 60} min ago"
    elif seconds < 86400:
        text = f"{seconds // 3600} h ago"
    elif seconds < 30 * 86400:
        text = f"{seconds // 86400} d ago"
    else:
        text = moment.date().isoformat()
    return {"moment": moment, "text": text}


@register.inclusion_tag("partials/problems.html", name="problems")
def problems_tag(problems: list[Any], title: str = "", target: str = "") -> dict[str, Any]:
    """Show an error box. `target` is the id of the editor that line numbers link to."""
    return {"problems": problems, "title": title, "target": target}


@register.simple_tag
def progress(spent: float | None, expected: float | None = None) -> str:
    """Format progress against the usual duration, as in "12 s of about 20 s". If it takes longer than usual, say so. The wording matches
    static/js/run/progress.js."""
    shown = seconds(None if spent is None else float(round(spent))).replace(".0 s", " s")
    if expected is None or spent is None:
        return shown
    return f"{shown} of about {seconds(expected)}" if spent <= expected else f"{shown}, longer than the usual {seconds(expected)}"


@register.simple_tag(takes_context=True)
def manage_command(context: dict[str, Any], words: str) -> str:
    """Return the command line that runs `manage.py WORDS` here. Only a browser on the same machine sees the data path."""
    asked = context["request"].META
    here = asked.get("REMOTE_ADDR") in LOOPBACK and "HTTP_X_FORWARDED_FOR" not in asked
    return manage_line(*words.split()) if here else f".venv/bin/python manage.py {words}"


@register.simple_tag(takes_context=True)
def query(context: dict[str, Any], **changes: Any) -> str:
    """Return the page's query string with some parameters changed. A value of None removes the parameter. Filters, sorting and paging use it."""
    params = context["request"].GET.copy()
    for name, value in changes.items():
        if value is None or value == "":
            params.pop(name, None)
        else:
            params[name] = value
    return f"?{params.urlencode()}" if params else "?"
