"""A stand-in for a language model: a local HTTP server of the OpenAI and Anthropic protocols that answers Stitchwork's prompts.

It writes with the built-in compiler, knows nothing but the body of each request, keeps nothing of what it is told but which faults it is in the
middle of, and makes the mistakes that it is asked to make, by a seed. How to use it: docs/how-to/try-without-a-model.md.
"""

from tests.standin.faults import CONTENT, KINDS, TRANSPORT, FaultPlan
from tests.standin.server import StandIn

__all__ = ["CONTENT", "KINDS", "TRANSPORT", "FaultPlan", "StandIn"]
