"""A JSON field whose value is read back exactly as it was written."""

from __future__ import annotations

import json
from typing import Any

from django.db import models


class ExactJSONField(models.JSONField):
    """A column of type `json`.

    Unlike `jsonb`, it keeps the order of keys and the format of numbers, so a trace is exported exactly as it was written.
    """

    def db_type(self, connection: Any) -> str:
        return "json"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return json.loads(value, cls=self.decoder) if isinstance(value, str) else value
