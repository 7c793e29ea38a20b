"""Form fields for the search settings: workflow, models, language and limits. The submit form and the fork form share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from agents.choices.limits import LIMITS
from agents.choices.workflows import DEFAULT, ROLES, SEARCHES, SIDE_BY_SIDE
from agents.roles.casting import impossible
from agents.settings import MOST_WORKERS, Budget, Settings
from webapp.accounts.models import Team
from webapp.arena.preferred import preferred
from webapp.llm.models import Profile
from webapp.ui.fields import set_choices

BUILT_IN = "built-in"
LANGUAGES = {"": "the device's: CUDA C++ or C++", "cuda": "CUDA C++", "triton": "Triton", "cpp": "C++ on the CPU"}
CODER_MODES = {"one": "one agent", "frontend+mid-end": "a pair: one makes it right, one makes it fast"}
FIRST_PROGRAMS = {"coder": "the model's own", "built-in": "the compiler's, which the model improves"}
AUTO = "auto"
AUTO_SAYS = "The built-in compiler searches by descend, a language model by stitch, unless your latest arena found another better."
# Limits that a newcomer selects with one word; "own" uses the fields. An amount does not set the limits on language models; their fields keep their
# values.
BUDGETS = {
    "quick": ("Quick", {"candidates": 3, "minutes": 10, "verifier_minutes": 4}),
    "normal": ("Normal", {"candidates": 8, "minutes": 30, "verifier_minutes": 10}),
    "thorough": ("Thorough", {"candidates": 32, "minutes": 180, "verifier_minutes": 60}),
}
OWN_BUDGET = ("own", "Own limits")
MINUTES = {"minutes": "seconds", "verifier_minutes": "verifier_seconds"}  # limits that people enter in minutes
SIMPLE = tuple(unit for unit in LIMITS if unit not in MINUTES.values())  # limits whose unit is the field's unit


def limit_field(
    name: str, *, initial: float | None = None, most: float | None = None, required: bool = False
) -> forms.IntegerField | forms.FloatField:
    """Return the form field for a limit, given its unit or its name in `MINUTES`.

    It has the bounds and the usual value of the limit. `most` lowers the upper bound.
    """
    limit, in_minutes = LIMITS[MINUTES.get(name, name)], name in MINUTES
    usual = limit.usual / 60 if in_minutes and limit.usual else limit.usual
    bounds: dict[str, Any] = {"min_value": limit.least, "max_value": most or (limit.most / 60 if in_minutes else limit.most), "required": required}
    opens = usual if initial is None else initial
    return forms.IntegerField(**bounds, initial=opens) if limit.whole else forms.FloatField(**bounds, initial=opens and float(f"{opens:g}"))


class AnnouncedModels:
    """Implements `ModelPort.known` with the orchestrators' announcements, because the web process has neither models nor keys."""

    def __init__(self) -> None:
        self.profiles = list(Profile.objects.order_by("name"))

    def known(self, profile: str) -> bool:
        return any(one.name == profile for one in self.profiles)


class SearchFields(forms.Form):
    """Search settings. `llm` is one model for all roles. A role's own field, if filled in, takes precedence for that role."""

    workflow = forms.ChoiceField(
        choices=[(AUTO, AUTO_SAYS), *((name, flow.sentence) for name, flow in SEARCHES.items())], initial=AUTO, required=False
    )
    llm = forms.ChoiceField(required=False, initial=BUILT_IN)
    planner = forms.ChoiceField(required=False)
    coder = forms.ChoiceField(required=False)
    judge = forms.ChoiceField(required=False)
    coder_mode = forms.ChoiceField(choices=list(CODER_MODES.items()), required=False, initial="one")
    first_program = forms.ChoiceField(choices=list(FIRST_PROGRAMS.items()), required=False, initial="coder")
    language = forms.ChoiceField(choices=list(LANGUAGES.items()), required=False)
    review_plan = forms.BooleanField(required=False)
    amount = forms.ChoiceField(
        choices=[*((name, label) for name, (label, _) in BUDGETS.items()), OWN_BUDGET],
        initial="normal",
        required=False,
        label="Budget",
    )
    candidates = limit_field("candidates", required=True)
    calls = limit_field("calls")
    tokens = limit_field("tokens")
    dollars = limit_field("dollars")
    minutes = limit_field("minutes", required=True)
    verifier_minutes = limit_field("verifier_minutes", required=True)
    workers = forms.IntegerField(
        min_value=1, max_value=MOST_WORKERS, initial=Settings().workers, required=False,
        help_text=f"For {SIDE_BY_SIDE}. Each device measures one program at a time.",
    )  # fmt: skip
    target = forms.FloatField(min_value=1.0, max_value=1000, required=False)

    arenas_of: Team | None = None  # team whose arenas the automatic workflow consults; set by the view that creates the form

    def offer(self) -> None:
        """Fill in the available models. Call it in `__init__`."""
        self.models = AnnouncedModels()
        self.profiles = self.models.profiles
        named = [(one.name, f"{one.name} ({one.model or one.kind})") for one in self.profiles]
        set_choices(self, "llm", [(BUILT_IN, "built-in compiler"), *named])
        for role in ROLES:
            set_choices(self, role, [("", "as above"), (BUILT_IN, "built-in compiler"), *named])

    def check(self, settings: Settings) -> None:
        """Reject settings that cannot work together, with an error at the field. Call this in `clean` once all fields are valid."""
        roles = impossible(settings.model_copy(update={"language": None}), self.models)
        language = None if roles else impossible(settings, self.models)
        if problem := roles or language:
            self.add_error("llm" if roles else "language", problem)

    def search(self) -> dict[str, Any]:
        """Return the chosen values, including the budget, under their names in `Settings`."""
        cleaned = self.cleaned_data
        llm = cleaned.get("llm") or BUILT_IN
        roles: dict[str, str] = {role: cleaned.get(role) or llm for role in ROLES}
        return {
            "workflow": workflow_of(cleaned.get("workflow", ""), roles.values(), self.arenas_of, cleaned.get("device") or "cpu"),
            **roles,
            "coder_mode": cleaned.get("coder_mode") or "one",
            "first_program": cleaned.get("first_program") or "coder",
            "language": cleaned.get("language") or None,
            "workers": cleaned.get("workers") or Settings().workers,
            "review_plan": bool(cleaned.get("review_plan")),
            "target": cleaned.get("target"),
            "budget": self.limits().model_dump(),
        }

    def limits(self) -> Budget:
        _, named = BUDGETS.get(self.cleaned_data.get("amount", ""), ("", {}))
        cleaned = self.cleaned_data | named
        in_seconds = {unit: cleaned[field] * 60 if cleaned.get(field) else None for field, unit in MINUTES.items()}
        return Budget.model_validate({unit: cleaned.get(unit) for unit in SIMPLE} | in_seconds)


def workflow_of(chosen: str, models: Iterable[str], team: Team | None, device_kind: str) -> str:
    """Return the workflow that was chosen.

    `models` are the models of the roles, and `team` is the team whose arenas are consulted. "" means `stitch`.
    """
    if chosen != AUTO:
        return chosen or DEFAULT
    known = set(models)
    found = preferred(team, device_kind, known) if team else None
    return found if found in SEARCHES else "descend" if known == {BUILT_IN} else DEFAULT


def amount_of(limits: Mapping[str, Any]) -> str:
    """Return the name of the amount that these field values correspond to."""
    return next((name for name, (_, named) in BUDGETS.items() if all(limits.get(field) == value for field, value in named.items())), OWN_BUDGET[0])


def initial_of(settings: Settings) -> dict[str, Any]:
    """Return the fields' initial values for given settings."""
    roles = {role: getattr(settings, role) for role in ROLES}
    same = len(set(roles.values())) == 1
    found: dict[str, Any] = {
        "workflow": settings.workflow,
        "llm": settings.coder,
        **{role: "" if same or name == settings.coder else name for role, name in roles.items()},
        "coder_mode": settings.coder_mode,
        "first_program": settings.first_program,
        "language": settings.language or "",
        "workers": settings.workers,
        "review_plan": settings.review_plan,
        "target": settings.target,
        **{unit: getattr(settings.budget, unit) for unit in SIMPLE},
    }
    for field, unit in MINUTES.items():
        limit = getattr(settings.budget, unit)
        found[field] = float(f"{limit / 60:.2f}") if limit and limit % 60 else limit and int(limit // 60)
    return found | {"amount": amount_of(found)}
