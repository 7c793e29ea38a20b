"""The built-in compiler: Planner and Coder without an LLM. Pure functions over data; it neither runs nor imports a task."""

from agents.compiler.figures import DeviceFigures
from agents.compiler.moves import moves
from agents.compiler.options import Move, Options
from agents.compiler.plan import CompilerPlan, Group, make_plan
from agents.compiler.program import print_program

__all__ = ["CompilerPlan", "DeviceFigures", "Group", "Move", "Options", "make_plan", "moves", "print_program"]
