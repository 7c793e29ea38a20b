"""Search policies: short modules that decide what to try next. All of them use the same engine."""

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

FUNCTIONS: dict[str, Workflow] = {  # keyed by the names in `agents.choices.workflows`, which holds all other information about them
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
