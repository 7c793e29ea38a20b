"""Search policies: each a short module that decides what to try next, on the one engine."""

from agents.run import Workflow
from agents.workflows.beam import beam
from agents.workflows.branch import branch
from agents.workflows.descend import descend
from agents.workflows.forge import forge
from agents.workflows.pilot import pilot
from agents.workflows.random_search import random_search
from agents.workflows.stitch import stitch
from agents.workflows.verify import verify
from agents.workflows.worldmodel import worldmodel

FUNCTIONS: dict[str, Workflow] = {  # by the names of `agents.choices.workflows`, where the rest of what is known about them stands
    "stitch": stitch,
    "forge": forge,
    "pilot": pilot,
    "branch": branch,
    "beam": beam,
    "worldmodel": worldmodel,
    "descend": descend,
    "random": random_search,
    "verify": verify,
}
