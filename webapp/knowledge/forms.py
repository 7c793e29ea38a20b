"""The document form. Text is pasted or uploaded, and an empty title is filled in from the first heading."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from django import forms

from agents.knowledge import SUFFIXES, title_of
from webapp.knowledge.documents import MOST_KIB
from webapp.knowledge.models import Document
from webapp.ui.fields import set_choices

NAMES = ", ".join(SUFFIXES)


class DocumentForm(forms.Form):
    title = forms.CharField(max_length=140, required=False)
    team = forms.ChoiceField(required=False)
    kind = forms.ChoiceField(choices=Document.KINDS, initial="markdown")
    text = forms.CharField(required=False, strip=False, widget=forms.Textarea(attrs={"rows": 22, "spellcheck": "true"}))
    file = forms.FileField(required=False, allow_empty_file=True, widget=forms.FileInput(attrs={"accept": ",".join(SUFFIXES)}))

    def __init__(self, data: Any = None, files: Any = None, *, teams: list[Any], initial: dict[str, Any] | None = None):
        super().__init__(data, files, initial=initial, label_suffix="")
        set_choices(self, "team", [(str(team.pk), team.name) for team in teams])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        upload = self.files.get("file")
        text = (cleaned.get("text") or "").replace("\r\n", "\n").replace("\r", "\n")
        if upload is not None and text.strip() and text != (self.initial.get("text") or ""):
            self.add_error("file", "You gave both a text and a file: remove one of them.")
        elif upload is not None:
            text = self._read(upload, cleaned)
        if self.errors:
            return cleaned
        if "\x00" in text:
            self.add_error("text", "The text has a zero byte, so it can't be searched: save it as plain text.")
        elif not text.strip():
            self.add_error("file" if upload is not None else "text", "The text is missing: paste it, or choose a file.")
        elif len(text.encode()) > MOST_KIB * 1024:
            size = len(text.encode()) // 1024
            self.add_error("text", f"The text has {size} KiB; at most {MOST_KIB} KiB are kept in one document. Divide it by its chapters.")
        cleaned["text"] = text
        if not (cleaned.get("title") or "").strip():
            named = PurePath(upload.name or "").stem if upload is not None else ""
            first = next((line.strip() for line in text.splitlines() if line.strip()), "")
            cleaned["title"] = ((title_of(text) if cleaned.get("kind") == "markdown" else "") or named or first)[:140]
        return cleaned

    def _read(self, upload: Any, cleaned: dict[str, Any]) -> str:
        if not upload.name.lower().endswith(SUFFIXES):
            self.add_error("file", f"{upload.name} is not one of {NAMES}: save it as text or Markdown first.")
        elif upload.size > MOST_KIB * 1024:
            self.add_error(
                "file", f"{upload.name} has {upload.size // 1024} KiB; at most {MOST_KIB} KiB are kept in one document. Divide it by its chapters."
            )
        else:
            try:
                text = upload.read().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
            except UnicodeDecodeError as error:
                self.add_error("file", f"{upload.name} is not UTF-8 text (byte {error.start + 1}): save it as UTF-8.")
            else:
                cleaned["kind"] = "text" if upload.name.lower().endswith(".txt") else "markdown"
                return str(text)
        return ""
