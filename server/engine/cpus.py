"""How many threads llama.cpp should use on this machine.

Matrix products gain nothing from hyper-threads and lose much from more threads than the container
may run, so the number is the least of: physical cores, cores this process may be scheduled on, and
the CPU quota of its control group. Read next: `llama.py`.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """The number of cores worth a thread each, at least 1."""
    physical = physical_cores(_read(_CPUINFO))
    allowed = allowed_cpus()
    return allowed if physical is None else max(1, min(allowed, physical))


def allowed_cpus() -> int:
    """On how many CPUs this process may run at once, hyper-threads included; at least 1."""
    limits = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        limits.append(len(os.sched_getaffinity(0)))
    granted = quota(_read(_QUOTA))
    return max(1, min(limits if granted is None else [*limits, granted]))


def physical_cores(cpuinfo: str) -> int | None:
    """Distinct (socket, core) pairs in the text of /proc/cpuinfo; None if it does not tell."""
    cores = set()
    for block in cpuinfo.split("\n\n"):
        lines = (line.partition(":") for line in block.splitlines())
        fields = {name.strip(): value.strip() for name, _, value in lines}
        if "physical id" in fields and "core id" in fields:
            cores.add((fields["physical id"], fields["core id"]))
    return len(cores) or None


def quota(cpu_max: str) -> int | None:
    """CPUs granted by the text of a control group's cpu.max, rounded up; None if unlimited."""
    try:
        granted, period = cpu_max.split()
        return max(1, math.ceil(int(granted) / int(period)))
    except (ValueError, ZeroDivisionError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
