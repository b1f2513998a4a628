"""How many threads the model gets."""

from __future__ import annotations

import pytest

from server.engine.cpus import physical_cores, quota, usable_cores


def cpuinfo(*cores: tuple[int, int]) -> str:
    return "\n\n".join(
        f"processor\t: {number}\nphysical id\t: {socket}\ncore id\t\t: {core}\nflags : a b"
        for number, (socket, core) in enumerate(cores)
    )


def test_hyper_threads_count_once() -> None:
    assert physical_cores(cpuinfo((0, 0), (0, 1), (0, 0), (0, 1))) == 2


def test_cores_of_two_sockets_are_distinct() -> None:
    assert physical_cores(cpuinfo((0, 0), (1, 0))) == 2


def test_a_cpuinfo_that_does_not_tell() -> None:
    assert physical_cores("processor : 0\nBogoMIPS : 50\n") is None
    assert physical_cores("") is None


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("max 100000\n", None),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("1 100000", 1),
        ("", None),
    ],
)
def test_quota(text: str, cpus: int | None) -> None:
    assert quota(text) == cpus


def test_there_is_at_least_one() -> None:
    assert usable_cores() >= 1
