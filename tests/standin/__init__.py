"""A stand-in for a language model: a local HTTP server for the OpenAI and Anthropic protocols that answers Stitchwork's prompts.

It writes programs with the built-in compiler and knows only the body of each request. It remembers nothing except which faults are still in effect.
Its mistakes are those that it is configured to make, drawn from a seed. To use it, see docs/how-to/try-without-a-model.md.
"""

from tests.standin.faults import CONTENT, KINDS, TRANSPORT, FaultPlan
from tests.standin.server import StandIn

__all__ = ["CONTENT", "KINDS", "TRANSPORT", "FaultPlan", "StandIn"]
