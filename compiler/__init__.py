"""The built-in compiler: a Planner and a Coder without an LLM. All its functions are pure, and none of them runs or imports a task."""

from compiler.figures import DeviceFigures
from compiler.options import Move, Options
from compiler.planning.moves import moves
from compiler.planning.plan import CompilerPlan, Group, make_plan
from compiler.program.program import print_program

__all__ = ["CompilerPlan", "DeviceFigures", "Group", "Move", "Options", "make_plan", "moves", "print_program"]
