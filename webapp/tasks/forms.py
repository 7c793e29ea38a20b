"""The forms that start a run. Every input is validated at the field where it is entered."""

from __future__ import annotations

from typing import Any, get_args

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from agents.choices.workflows import OWN_PROGRAM
from agents.settings import Settings
from verifier.program import Program
from verifier.source import MAX_SOURCE_BYTES, Problem, SourceError
from verifier.task import Mode, Precision, Task
from webapp.accounts.models import Team
from webapp.tasks.modules import read_module
from webapp.tasks.search_fields import SearchFields
from webapp.tasks.written import ModuleForm
from webapp.ui.fields import set_choices

PRECISIONS = {
    "fp32-strict": "fp32, no TF32 in either program or baseline",
    "tf32": "TF32 allowed in both",
    "bf16": "bfloat16 error bound",
    "fp16": "float16 error bound",
}
MODES = {"train": "train(), as KernelBench leaves it", "eval": "eval()"}
assert set(PRECISIONS) == set(get_args(Precision)) and set(MODES) == set(get_args(Mode))


def problems_of(source: str, kind: str) -> list[Problem]:
    """Return all problems that parsing finds in a task or program, without running it."""
    try:
        Task.read(source) if kind == "task" else Program.read(source)
    except SourceError as error:
        module = read_module(source) if kind == "task" else None
        if module is None:
            return error.problems
        names = ", ".join(f"`{found.name}`" for found in module.classes)
        hint = "enter constructor arguments and input shapes in the form beside the code"
        return [Problem(line=module.first.line, message=f"this is a plain module ({names}) without `get_inputs` and `get_init_inputs`", hint=hint)]
    return []


class SourceField(forms.CharField):
    """A source, entered as text or uploaded as the file NAME_file. Line endings are normalised to Unix style, because the hash depends on them."""

    widget = forms.Textarea

    def __init__(self, kind: str, **options: Any):
        super().__init__(strip=False, required=False, **options)
        self.kind = kind

    def to_python(self, value: str | None) -> str:
        return (super().to_python(value) or "").replace("\r\n", "\n").replace("\r", "\n")


class RunForm(forms.Form):
    """The settings that every run has. `search()` returns the others. `problems` collects the problems found in sources, keyed by field."""

    title = forms.CharField(max_length=140, required=False)
    team = forms.ChoiceField(required=False)
    task = SourceField("task")
    device = forms.ChoiceField()
    precision = forms.ChoiceField(choices=[(name, name) for name in PRECISIONS], initial="fp32-strict")
    mode = forms.ChoiceField(choices=[(name, name) for name in MODES], initial="train")

    sources: tuple[str, ...] = ("task",)
    arenas_of: Team | None = None  # see `SearchFields`

    def __init__(
        self,
        data: QueryDict | None = None,
        files: MultiValueDict[str, UploadedFile[Any]] | None = None,
        *,
        devices: list[Any],
        teams: list[Any],
        initial: dict[str, Any] | None = None,
    ):
        super().__init__(data, files, initial=initial, label_suffix="")
        set_choices(self, "device", [(choice.kind, choice.label) for choice in devices if choice.usable])
        set_choices(self, "team", [(str(team.pk), team.name) for team in teams])
        self.problems: dict[str, list[Problem]] = {}
        self.module: ModuleForm | None = None  # the form next to the code, if the source is a plain module
        for name, field in self.fields.items():
            field.widget.attrs["aria-describedby"] = f"{self[name].id_for_label}_help"

    def clean(self) -> dict[str, Any]:
        super().clean()
        cleaned = self.cleaned_data
        for name in self.sources:
            source = self._uploaded(name) or cleaned.get(name, "")
            kept, source = source, self._written(name, source)
            found = self.problems.get(name) or self._check(name, source)
            if found:
                self.problems[name] = found
                self.add_error(name, "; ".join(p.message for p in found))
            cleaned[name] = kept if found else source
        return cleaned

    def _written(self, name: str, source: str) -> str:
        """Turn a plain module and the form next to it into a task. Anything missing in the form is reported as a problem with the source."""
        plain = name == "task" and "class" in self.data and len(source) <= MAX_SOURCE_BYTES
        module = read_module(source) if plain else None
        if module is None:
            return source
        self.module = form = ModuleForm.open(module, self.data)
        if form.is_valid():
            return form.task(source)
        hint = "fill it in beside the code, then submit again"
        self.problems[name] = [Problem(line=form.chosen.line, message=f"`{form.chosen.name}`: {trouble}", hint=hint) for trouble in form.troubles]
        return source

    def _check(self, name: str, source: str) -> list[Problem]:
        field = self.fields[name]
        assert isinstance(field, SourceField)
        kind = field.kind
        if not source.strip():
            return [Problem(message=f"there is no {kind}", hint="type or paste the source, upload a file, or start from an example")]
        return problems_of(source, kind)

    def _uploaded(self, name: str) -> str:
        """Return the text of a file that was uploaded without the page's script. (The script would load the file into the editor instead.)"""
        upload = self.files.get(f"{name}_file")
        if upload is None:
            return ""
        size = upload.size or 0
        if size > MAX_SOURCE_BYTES:
            limit = f"{upload.name} has {size // 1024} KiB; at most {MAX_SOURCE_BYTES // 1024} KiB are read"
            self.problems[name] = [Problem(message=limit, hint="submit one Python module without data in it")]
            return ""
        try:
            text: str = upload.read().decode("utf-8-sig")
            return text.replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            self.problems[name] = [Problem(message=f"{upload.name} is not UTF-8 text (byte {error.start})", hint="upload the Python source itself")]
            return ""

    def search(self) -> dict[str, Any]:
        """Return the settings that this form does not contain."""
        raise NotImplementedError

    def settings(self) -> Settings:
        cleaned = self.cleaned_data
        chosen = {name: cleaned[name] for name in ("device", "precision", "mode")}
        return Settings.model_validate(chosen | self.search())


class SubmitForm(SearchFields, RunForm):
    asked = ("task", "device", "amount")  # always visible, while all other fields are under Advanced

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        self.offer()

    def clean(self) -> dict[str, Any]:
        super().clean()
        if not self.errors:
            self.check(self.settings())
        return self.cleaned_data

    @property
    def advanced_errors(self) -> bool:
        """Return whether a field under Advanced was refused, in which case that section is open."""
        return any(name not in self.asked and name != "__all__" for name in self.errors)


class VerifyForm(RunForm):
    program = SourceField("program")

    sources = ("task", "program")

    def search(self) -> dict[str, Any]:
        return {"workflow": OWN_PROGRAM.name, "budget": {"candidates": OWN_PROGRAM.programs}}
