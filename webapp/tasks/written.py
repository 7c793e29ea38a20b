"""Generates a KernelBench task from a plain module and a small form.

The form contains the constructor arguments and the shape, type and values of each input.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from webapp.tasks.bounds import Rows
from webapp.tasks.modules import ModuleClass, Parameter, PlainModule

MARK = "# --- Written from the form: edit freely, or change the form to write it again. ---"
DTYPES = ["float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "bool"]
FLOATS = {"float32", "bfloat16", "float16", "float64"}
VALUES = {
    "normal": "normal, mean 0, deviation 1",
    "uniform": "uniform in [0, 1)",
    "integers": "whole numbers from … to …",
    "mask": "true with probability 1/2",
    "zeros": "zeros",
    "ones": "ones",
    "expression": "a Python expression",
    "plain": "no tensor: a plain value",
    "default": "left out: its default",
}
METHODS = {"init": "init", "input": "forward"}  # prefix of form fields -> the method that takes these arguments
MOST_DIMENSIONS = 8
MOST_ELEMENTS = 2**32


@dataclass
class InputField:
    """One argument of `forward` in the form. `errors` is keyed by control name."""

    parameter: Parameter
    values: str
    shape: str = ""
    dtype: str = "float32"
    low: str = "0"
    high: str = "100"
    expression: str = ""
    rows: Rows | None = None  # size of the table that the input indexes
    suggested: str = ""  # the shape derived from the source
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def choices(self) -> dict[str, str]:
        return {name: said for name, said in VALUES.items() if name != "default" or self.parameter.default is not None}

    @property
    def is_tensor(self) -> bool:
        return self.values not in ("expression", "plain", "default")


@dataclass
class ArgumentField:
    parameter: Parameter
    value: str
    error: str = ""


@dataclass
class ModuleForm:
    """The form for one class, filled with the posted values or with values suggested by the source."""

    module: PlainModule
    chosen: ModuleClass
    arguments: list[ArgumentField]
    inputs: list[InputField]
    problem: str = ""

    @classmethod
    def open(cls, module: PlainModule, given: Mapping[str, str]) -> ModuleForm:
        chosen = module.find(given.get("class", "")) or module.first
        given = _still_meant(module, chosen, given)
        arguments = [ArgumentField(p, given.get(f"init.{p.name}", p.default or "").strip()) for p in chosen.init]
        values = {a.parameter.name: a.value for a in arguments}
        rows, shapes = module.rows(chosen.name, values), module.shapes(chosen.name, values)
        return cls(module, chosen, arguments, [_input(p, given, rows.get(p.name), shapes.get(p.name, "")) for p in chosen.forward])

    @property
    def of(self) -> str:
        """Return the form's class and its arguments as written, as JSON."""
        return json.dumps([self.chosen.name, self.chosen.written], separators=(",", ":"))

    @property
    def follows_arguments(self) -> bool:
        """Return whether suggestions for inputs can depend on constructor arguments, in which case the page resends the arguments whenever they
        change."""
        return bool(self.arguments)

    @property
    def missing(self) -> list[str]:
        """Return readable names of the values that are still needed before a task can be generated."""
        found = [a.parameter.name for a in self.arguments if not a.value]
        for one in self.inputs:
            if one.is_tensor:
                found += [f"shape of {one.parameter.name}"] * (not one.shape)
                found += [f"range of {one.parameter.name}"] * (one.values == "integers" and not one.high)
            elif one.values != "default" and not one.expression:
                found.append(f"value of {one.parameter.name}")
        return found

    def is_valid(self) -> bool:
        if self.chosen.problems:
            self.problem = self.chosen.problems[0].message
        elif "Model" in self.module.taken and self.chosen.name != "Model":
            self.problem = f"The source already has a class `Model` besides `{self.chosen.name}`, but the task needs that name: rename it first."
        for argument in self.arguments:
            _check_argument(argument)
        given = True
        for one in self.inputs:
            _check_input(one)
            if one.values != "default" and not given:
                one.errors["source"] = "leave this input out too, since an earlier one is left out"
            given = given and one.values != "default"
        return not self.problem and not any(a.error for a in self.arguments) and not any(i.errors for i in self.inputs)

    @property
    def troubles(self) -> list[str]:
        """Return the problems that `is_valid` found, as sentences that name the field. One sentence about all empty fields comes first."""
        missing = self.missing
        found = [f"still needed: {', '.join(missing)}"] if missing else []
        found += [self.problem] if self.problem else []
        found += [f"{a.parameter.name} {a.error}" for a in self.arguments if a.error and a.value]
        for one in self.inputs:
            empty = {f"{what} of {one.parameter.name}" for what in ("shape", "range", "value")} & set(missing)
            found += [] if empty else [f"{what} of {one.parameter.name}: {said}" for what, said in one.errors.items()]
        return found

    def task(self, source: str) -> str:
        """Return the source with the code that turns it into a task. Call this only after `is_valid`."""
        lines = [plain_part(source).rstrip(), "", "", MARK]
        if not self.module.has_torch:
            lines += ["import torch", "", ""]
        lines += self._model()
        shapes = [_line(one) for one in self.inputs if one.values != "default"]
        lines += (
            ["def get_inputs():", "    return [", *(f"        {shape}" for shape in shapes), "    ]"]
            if shapes
            else ["def get_inputs():", "    return []"]
        )
        lines += ["", "", "def get_init_inputs():", f"    return [{', '.join(self._given())}]", ""]
        return "\n".join(lines)

    def _given(self) -> list[str]:
        """Return the constructor arguments in order, up to the last one that differs from its default, or all of them if `Model` passes any by
        name."""
        if any(a.parameter.keyword_only for a in self.arguments):
            return [a.value for a in self.arguments]
        values = [(a.value, a.value != (a.parameter.default or "")) for a in self.arguments]
        needed = max(
            (at + 1 for at, (a, (_, changed)) in enumerate(zip(self.arguments, values, strict=True)) if changed or a.parameter.default is None),
            default=0,
        )
        return [value for value, _ in values[:needed]]

    def _model(self) -> list[str]:
        """Return a `Model` class that wraps the chosen one, or nothing if the chosen class is called `Model` and takes its arguments by position."""
        by_name = [a.parameter.name for a in self.arguments if a.parameter.keyword_only]
        if self.chosen.name == "Model" and not by_name:
            return []
        lines = [f"class Model({self.chosen.name}):", f'    """{self.chosen.name} as a task."""']
        if by_name:
            names = [a.parameter.name for a in self.arguments]
            passed = [f"{name}={name}" if name in by_name else name for name in names]
            lines += ["", f"    def __init__(self, {', '.join(names)}):", f"        super().__init__({', '.join(passed)})"]
        inputs = [one.parameter.name for one in self.inputs if one.values != "default"]
        lines += ["", f"    def forward({', '.join(['self', *inputs])}):", f"        return super().forward({', '.join(inputs)})"]
        return [*lines, "", ""]


def plain_part(source: str) -> str:
    """Return the source without any part that was generated from the form."""
    return source.partition(MARK)[0]


def _still_meant(module: PlainModule, chosen: ModuleClass, given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the posted values whose arguments have not changed in the source since the form was shown.

    `given["of"]` is the `ModuleForm.of` of the form that was filled in. Without it, the form is taken to be for this class. Values for another module
    are dropped. Values for another class are dropped if the argument has a different type or default.
    """
    if "of" not in given:
        return given
    try:
        name, was = json.loads(given["of"])
        known = was if module.find(name) else {}
        meant = {f"{form}.{p[0]}" for form, method in METHODS.items() for p in chosen.written[method] if p in known.get(method, [])}
    except (ValueError, TypeError, AttributeError):
        meant = set()
    return {field: value for field, value in given.items() if field.partition(".")[0] not in METHODS or ".".join(field.split(".")[:2]) in meant}


def _input(parameter: Parameter, given: Mapping[str, str], rows: Rows | None, shape: str) -> InputField:
    """Return the field with the posted values or, where there are none, the values suggested by the source.

    A suggestion that the person has not changed is updated when the constructor's arguments change.
    """
    for name in ("high", "shape"):
        if given.get(f"input.{parameter.name}.{name}", "") == given.get(f"input.{parameter.name}.{name}.suggested", ""):
            given = {field: text for field, text in given.items() if field != f"input.{parameter.name}.{name}"}

    def value(name: str, otherwise: str) -> str:
        return given.get(f"input.{parameter.name}.{name}", otherwise).strip()

    guess = "indices" if rows else parameter.guess
    values = {"mask": "mask", "indices": "integers"}.get(guess, "normal") if parameter.is_tensor else "plain"
    if parameter.default is not None:
        values = "default"
    high = str(rows.count) if rows and rows.count is not None else "" if rows else "100"
    dtype = {"mask": "bool", "indices": "int64"}.get(guess, "float32")
    chosen = value("values", values)
    return InputField(
        parameter, chosen if chosen in VALUES else values, value("shape", shape), value("dtype", dtype), value("low", "0"), value("high", high),
        value("expression", parameter.default or "" if values == "plain" else ""), rows, shape,
    )  # fmt: skip


def _check_argument(argument: ArgumentField) -> None:
    if not argument.value:
        argument.error = "has no default: give a value, such as 512"
    elif problem := _not_an_expression(argument.value):
        argument.error = problem


def _check_input(one: InputField) -> None:
    if one.values == "default":
        return
    if not one.is_tensor:
        if problem := "give a value" if not one.expression else _not_an_expression(one.expression):
            one.errors["expression"] = problem
        return
    if isinstance(shape := sizes(one.shape), str):
        one.errors["shape"] = shape
    if one.dtype not in DTYPES:
        one.errors["dtype"] = "is not a type of a tensor"
    elif one.values in ("normal", "uniform") and one.dtype not in FLOATS:
        one.errors["dtype"] = f"{one.values} values need a floating type; take whole numbers for {one.dtype}"
    elif one.values == "mask" and one.dtype != "bool":
        one.errors["dtype"] = "true and false are of the type bool"
    elif one.values == "integers" and one.dtype == "bool":
        one.errors["dtype"] = "choose an integer type for whole numbers"
    if one.values == "integers" and (problem := _range_problem(one)):
        one.errors["high"] = problem


def _range_problem(one: InputField) -> str:
    if not one.high and one.rows:
        return f"give the number of rows, `{one.rows.written}`"
    try:
        low, high = int(one.low), int(one.high)
    except ValueError:
        return "give two whole numbers"
    if low >= high:
        return "must be greater than the lowest value; the upper end is exclusive"
    if one.rows and one.rows.count is not None and (high > one.rows.count or low < 0):
        return f"is out of range: the table has {one.rows.count} rows (`{one.rows.written}`), so indices are 0 to {one.rows.count - 1}"
    return ""


def sizes(text: str) -> tuple[int, ...] | str:
    """Return the shape, or a message that says what is wrong with it.

    "16, 1024", "(16, 1024)" and "16 x 1024" are equivalent. A scalar must be written as "()".
    """
    inner = text.strip()
    if inner == "()":
        return ()
    parts = [part for part in re.split(r"\s*[,x×*]\s*|\s+", inner.strip("()[]").strip(" ,")) if part]
    if not parts:
        return "give the sizes, such as 16, 1024"
    if not all(re.fullmatch(r"\d[\d_]*", part) for part in parts):
        return f"{next(p for p in parts if not re.fullmatch(r'[0-9][0-9_]*', p))!r} is not a size: give whole numbers, such as 16, 1024"
    shape = tuple(int(part) for part in parts)
    if len(shape) > MOST_DIMENSIONS:
        return f"has {len(shape)} dimensions; at most {MOST_DIMENSIONS}"
    if prod(shape) > MOST_ELEMENTS:
        return f"has {prod(shape):,} elements; at most {MOST_ELEMENTS:,}"
    return shape


def _not_an_expression(text: str) -> str:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "is not a Python expression: give a value such as 512, 0.1, True or 'same'"
    return "" if "\n" not in text and "#" not in text else "has to be one expression on one line"


def _line(one: InputField) -> str:
    """Return the line for one element of the list in `get_inputs`, with its name as a comment."""
    return f"{_value(one)},  # {one.parameter.name}"


def _value(one: InputField) -> str:
    if not one.is_tensor:
        return one.expression
    shape = sizes(one.shape)
    written = ", ".join(map(str, shape)) if shape else "()"
    of = "" if one.dtype == "float32" else f", dtype=torch.{one.dtype}"
    if one.values == "integers":
        return (
            f"torch.randint({int(one.low)}, {int(one.high)}, ({written}{',' if len(shape) == 1 else ''}){'' if one.dtype == 'int64' else of})"
            if shape
            else f"torch.randint({int(one.low)}, {int(one.high)}, (){'' if one.dtype == 'int64' else of})"
        )
    if one.values == "mask":
        return f"torch.rand({written}) < 0.5"
    function = {"normal": "randn", "uniform": "rand", "zeros": "zeros", "ones": "ones"}[one.values]
    return f"torch.{function}({written}{of})"
