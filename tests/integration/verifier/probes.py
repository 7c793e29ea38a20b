"""Sources for a hostile program's attempts from inside the sandbox. All of them are attempted, and the final exception reports which ones
succeeded."""

from __future__ import annotations

import json
from typing import Any

HEAD = """
import ctypes, json, os, socket, struct, sys
LIBC = ctypes.CDLL(None, use_errno=True)
FACTS = json.loads({facts!r})
worked, refused = [], []


def attempt(name, action):
    try:
        outcome = action()
    except BaseException as error:
        refused.append(f"{{name}}: {{type(error).__name__}}")
    else:
        (refused if outcome is None else worked).append(name if outcome is None else f"{{name}}: {{outcome!r}}"[:120])


def call(number, *arguments):
    result = LIBC.syscall(number, *arguments)
    if result == 0 and number in (56, 57, 58, 435):
        os._exit(0)  # the child of a clone that should not have been possible
    return None if result < 0 else result


def probe():
{body}
    raise ValueError(f"worked {{worked}}, refused {{len(refused)}}")
"""

NETWORK = """
for family, kind in ((2, 1), (2, 2), (2, 3), (10, 1), (10, 2), (16, 3), (17, 3), (40, 1), (38, 5), (29, 3), (31, 1)):
    attempt(f"socket family {family}", lambda: socket.socket(family, kind))
    attempt(f"raw socket call, family {family}", lambda: call(41, family, kind, 0))
attempt("TCP to the host", lambda: socket.create_connection(("127.0.0.1", FACTS["port"]), timeout=2))
attempt("a name from DNS", lambda: socket.getaddrinfo("localhost", 80)[0][4] and socket.create_connection(("localhost", FACTS["port"]), timeout=2))


def unix(address):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(2)
    connection.connect(address)
    connection.send(b"leak")
    return "connected"


attempt("abstract socket of the host", lambda: unix("\\0" + FACTS["abstract"]))
attempt("unix socket of the host", lambda: unix(FACTS["path"]))
for path in ("/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/nvidia-persistenced/socket"):
    attempt(path, lambda: unix(path))
"""

PROCESSES = """
numbers = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
own = os.getpid()
attempt("sight of other processes", lambda: numbers if len(numbers) > 4 else None)
attempt("signal to every process", lambda: os.kill(-1, 0) or "sent")
for pid in FACTS["pids"]:
    attempt(f"environ of {pid}", lambda: open(f"/proc/{pid}/environ", "rb").read(64))
    attempt(f"memory of {pid}", lambda: open(f"/proc/{pid}/mem", "rb"))
    attempt(f"maps of {pid}", lambda: open(f"/proc/{pid}/maps").read(64))
    attempt(f"files of {pid}", lambda: os.listdir(f"/proc/{pid}/fd"))
    attempt(f"root of {pid}", lambda: os.listdir(f"/proc/{pid}/root/"))
    attempt(f"signal 0 to {pid}", lambda: os.kill(pid, 0) or "sent")
    attempt(f"SIGSTOP to {pid}", lambda: os.kill(pid, 19) or "sent")
    attempt(f"pidfd of {pid}", lambda: call(434, pid, 0))
    attempt(f"priority of {pid}", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19) or ("set" if os.getpriority(os.PRIO_PROCESS, pid) == 19 else None))
for pid in {1, *FACTS["pids"]}:
    buffer = ctypes.create_string_buffer(64)
    local = struct.pack("QQ", ctypes.addressof(buffer), 64)
    remote = struct.pack("QQ", id(buffer), 64)
    attempt(f"process_vm_readv of {pid}", lambda: call(310, pid, local, 1, remote, 1, 0))
    attempt(f"process_vm_writev of {pid}", lambda: call(311, pid, local, 1, remote, 1, 0))
    attempt(f"ptrace of {pid}", lambda: call(101, 16, pid, 0, 0))
    attempt(f"ptrace seize of {pid}", lambda: call(101, 0x4206, pid, 0, 0))
    attempt(f"kcmp with {pid}", lambda: call(312, own, pid, 0, 0, 0))
one = max(os.sched_getaffinity(0))


def moved():
    return os.sched_getaffinity(0) if len(before) > 1 and os.sched_getaffinity(0) == {one} else None


before = os.sched_getaffinity(0)
attempt("a processor of its own", lambda: os.sched_setaffinity(0, {one}) or moved())
attempt("a processor of its own, by number", lambda: call(203, 0, 128, struct.pack("Q", 1 << one) + bytes(120)) and None or moved())
attempt("memory of the first process", lambda: open("/proc/1/mem", "rb").read(8))
attempt("a secret in a listed environment", lambda: [n for n in numbers if n != own and FACTS["secret"].encode()[::-1] in read(n)] or None)


def read(number):
    try:
        return open(f"/proc/{number}/environ", "rb").read()
    except OSError:
        return b""
"""

FILES = """
name = FACTS["marker"]
folders = ["/", "/usr", "/usr/lib", "/etc", "/dev", "/dev/pts", "/opt", "/opt/stitchwork", "/opt/stitchwork/verifier", "/proc", "/sys", "/var",
           "/var/tmp", "/run", "/home", "/root", "/mnt", "/srv", "/boot", sys.prefix, sys.base_prefix, os.path.dirname(os.__file__),
           "/tmp/../", FACTS["data"], FACTS["root"], os.path.dirname(FACTS["path"])]
for folder in folders:
    path = os.path.join(folder, name)
    attempt(f"a file in {folder}", lambda: open(path, "w") and path)
    attempt(f"a folder in {folder}", lambda: os.mkdir(path + ".d") or path)
    attempt(f"a link in {folder}", lambda: os.symlink("/tmp", path + ".l") or path)
    attempt(f"a device in {folder}", lambda: os.mknod(path + ".n", 0o600 | 0o020000, os.makedev(1, 1)) or path)
attempt("a device in /tmp", lambda: os.mknod("/tmp/mem", 0o600 | 0o020000, os.makedev(1, 1)) or "made")
attempt("a mode of /usr", lambda: os.chmod("/usr/bin", 0o777) or "changed")
attempt("an owner of /usr", lambda: os.chown("/usr/bin", 0, 0) or "changed")
for path in ("/opt/stitchwork/verifier/limits.py", "/etc/ld.so.cache", "/usr/bin/env", sys.executable, os.__file__, "/proc/sys/kernel/core_pattern",
             "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs", "/dev/mem", "/dev/kmsg"):
    attempt(f"writing {path}", lambda: open(path, "r+b"))
for entry in os.scandir("/proc"):
    if entry.name.isdecimal() or entry.is_symlink():
        continue
    inside = [os.path.join(f, n) for f, _, names in os.walk(entry.path) for n in names] if entry.is_dir() else [entry.path]
    for path in inside:
        attempt(f"writing {path}", lambda: open(path, "r+b", buffering=0))
os.symlink("/usr", "/tmp/way-out")
attempt("through a link", lambda: open("/tmp/way-out/" + name, "w"))
for path in ("/etc/shadow", "/etc/passwd", "/etc/hostname", "/root", "/home", "/var/lib", "/boot", FACTS["data"], FACTS["root"] + "/manage.py",
             FACTS["root"] + "/.git", "/proc/1/root/root", "/proc/1/cwd/../root"):
    attempt(f"reading {path}", lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(16))
attempt("the host's /tmp", lambda: sorted(os.listdir("/tmp")) if FACTS["marker"] + ".outside" in os.listdir("/tmp") else None)
"""

KERNEL = """
NEW = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000}
for kind, flag in NEW.items():
    attempt(f"unshare {kind}", lambda: call(272, flag))
    attempt(f"clone {kind}", lambda: call(56, flag | 17, 0, 0, 0, 0))
    attempt(f"clone3 {kind}", lambda: call(435, struct.pack("Q7QQ2Q", flag, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)[:64], 64))
for place in ("mnt", "net", "pid", "user", "uts", "ipc"):
    attempt(f"setns {place}", lambda: call(308, os.open(f"/proc/1/ns/{place}", os.O_RDONLY), 0))
attempt("mount tmpfs", lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, None))
attempt("mount proc", lambda: call(165, b"proc", b"/tmp", b"proc", 0, None))
attempt("bind mount", lambda: call(165, b"/usr", b"/tmp", None, 4096, None))
attempt("remount of /", lambda: call(165, None, b"/", None, 32 | 4096, None))
attempt("umount", lambda: call(166, b"/proc", 2))
attempt("pivot_root", lambda: call(155, b"/tmp", b"/tmp"))
attempt("chroot", lambda: call(161, b"/tmp"))
attempt("fsopen", lambda: call(430, b"tmpfs", 0))
attempt("open_tree", lambda: call(428, -100, b"/", 1))
attempt("move_mount", lambda: call(429, -100, b"/usr", -100, b"/tmp", 0))
attempt("mount_setattr", lambda: call(442, -100, b"/", 0, struct.pack("4Q", 0, 1, 0, 0), 32))
attempt("add_key", lambda: call(248, b"user", b"stitch", b"x", 1, -3))
attempt("request_key", lambda: call(249, b"user", b"stitch", None, -3))
attempt("keyctl", lambda: call(250, 0, -3, 1))
attempt("bpf", lambda: call(321, 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(64), 80))
attempt("perf_event_open", lambda: call(298, struct.pack("IIQ", 1, 128, 0) + bytes(112), 0, -1, -1, 0))
attempt("userfaultfd", lambda: call(323, 0))
attempt("userfaultfd, user mode", lambda: call(323, 1))
attempt("/dev/userfaultfd", lambda: os.open("/dev/userfaultfd", os.O_RDWR))
attempt("io_uring", lambda: call(425, 8, ctypes.create_string_buffer(120)))
attempt("init_module", lambda: call(175, b"", 0, b""))
attempt("kexec_load", lambda: call(246, 0, 0, None, 0))
attempt("open_by_handle_at", lambda: call(304, -100, struct.pack("Ii", 8, 1) + bytes(8), 0))
attempt("iopl", lambda: call(172, 3))
attempt("modify_ldt", lambda: call(154, 0, ctypes.create_string_buffer(64), 64))
attempt("settimeofday", lambda: call(164, struct.pack("qq", 0, 0), None))
attempt("reboot", lambda: call(169, 0xFEE1DEAD, 672274793, 0, None))
attempt("sethostname", lambda: call(170, b"mine", 4))
attempt("setuid to another", lambda: os.setresuid(12345, 12345, 12345) or "done")
attempt("setgid to another", lambda: os.setresgid(12345, 12345, 12345) or "done")
attempt("setgroups", lambda: os.setgroups([0, 4, 6]) or "done")
attempt("ambient capability", lambda: None if LIBC.prctl(47, 2, 21, 0, 0) else "raised")
attempt("more processes than root's limit", lambda: __import__("resource").setrlimit(7, (1 << 20, 1 << 20)) or "raised")
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
for capability in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    attempt(capability, lambda: status[capability].strip() if int(status[capability], 16) else None)
attempt("new privileges by exec", lambda: None if status["NoNewPrivs"].strip() == "1" else status["NoNewPrivs"])
attempt("no seccomp filter", lambda: None if status["Seccomp"].strip() == "2" else status["Seccomp"])
"""

GROUPS = {"network": NETWORK, "processes": PROCESSES, "files": FILES, "kernel": KERNEL}


def prober(program: str, group: str, facts: dict[str, Any]) -> str:
    """Returns `program` (a softmax `ModelNew`) with a forward that makes the attempts of `group` and raises their results."""
    body = GROUPS[group].strip()
    if group == "processes":  # a helper that its last line needs
        body, _, helper = body.rpartition("\n\n\n")
        body = helper + "\n" + body
    head = HEAD.format(facts=json.dumps(facts), body="\n".join("    " + line for line in body.splitlines()))
    return head.strip() + "\n\n" + program.replace("return torch.softmax", "probe()\n        return torch.softmax")
