"""The built-in compiler: Planner and Coder without an LLM. Pure functions over data; it neither runs nor imports a task."""

from compiler.figures import DeviceFigures
from compiler.options import Move, Options
from compiler.planning.moves import moves
from compiler.planning.plan import CompilerPlan, Group, make_plan
from compiler.program.program import print_program

__all__ = ["CompilerPlan", "DeviceFigures", "Group", "Move", "Options", "make_plan", "moves", "print_program"]
