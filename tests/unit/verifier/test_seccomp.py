"""The system calls that the filter ignores: those that set priorities and, if the judge binds a party, those that set processors."""

import json
import os
import subprocess
import sys

import pytest

from verifier.confinement import seccomp

ASKS = """
import json, os, sys
from verifier.confinement.seccomp import install
install(placed=sys.argv[1] == "placed")
first = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {first})
os.setpriority(os.PRIO_PROCESS, 0, 7)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
print(json.dumps([len(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)]))
"""


@pytest.mark.skipif(not seccomp.supported(), reason="no filter for this processor architecture")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nothing to choose from")
@pytest.mark.parametrize("placed", [True, False])
def test_a_party_has_no_priority_and_where_the_judge_binds_it_no_choice_of_processors(placed):
    done = subprocess.run([sys.executable, "-c", ASKS, "placed" if placed else "free"], capture_output=True, text=True, check=True)
    processors, priority, policy = json.loads(done.stdout)
    assert processors == (len(os.sched_getaffinity(0)) if placed else 1)
    assert (priority, policy) == (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))


KNOCKS = """
import socket
from verifier.confinement.seccomp import install
install()
socket.socketpair()
for family in (socket.AF_UNIX, socket.AF_INET):
    try:
        socket.socket(family)
    except PermissionError as error:
        print(error)
"""


@pytest.mark.skipif(not seccomp.supported(), reason="no filter for this processor architecture")
def test_without_namespaces_no_socket_of_the_host_can_be_reached():
    done = subprocess.run([sys.executable, "-c", KNOCKS], capture_output=True, text=True, check=True)
    assert done.stdout == "[Errno 1] Operation not permitted\n" * 2
