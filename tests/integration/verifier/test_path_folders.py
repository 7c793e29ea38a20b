"""A party, which runs isolated, can import the packages that its host finds through PYTHONPATH, and leaves them in place when it ends."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
from verifier.limits import Limits
from verifier.confinement.sandbox import PartySpec, spawn
from verifier.confinement.visible import import_path

party = spawn(PartySpec(Limits(), data_limit=True))
try:
    print(party.channel.receive(60).message["type"], len(import_path()))
finally:
    party.end()
"""


def test_a_folder_of_pythonpath_outlives_the_party_that_saw_it(tmp_path):
    (tmp_path / "pydantic").mkdir()
    (tmp_path / "pydantic" / "kept.txt").write_text("still here")
    # In a party, the folder comes after site-packages, so an empty folder of that name hides nothing there. It must not come first here either.
    script = f"import sys; sys.path.remove({str(tmp_path)!r})\n{SCRIPT}"
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["ready", "2"], done.stderr
    assert (tmp_path / "pydantic" / "kept.txt").read_text() == "still here"
