"""A stand-in for a language model: a local HTTP server for the OpenAI and Anthropic protocols that answers Stitchwork's prompts.

It writes programs with the built-in compiler. It uses only the body of each request, stores nothing between requests except which faults are in
progress, and makes the requested mistakes according to a seed. docs/how-to/try-without-a-model.md explains how to use it.
"""

from tests.standin.faults import CONTENT, KINDS, TRANSPORT, FaultPlan
from tests.standin.server import StandIn

__all__ = ["CONTENT", "KINDS", "TRANSPORT", "FaultPlan", "StandIn"]
