"""Search policies: each a short module that decides what to try next, on the one engine."""

from agents.run import Workflow
from agents.workflows.stitch import stitch
from agents.workflows.verify import verify

WORKFLOWS: dict[str, Workflow] = {"stitch": stitch, "verify": verify}
