"""Who is next: a line for each client, and one from each in turn.

Clients take turns, so one that asks for a hundred answers at once makes another wait for one of
them and not for all. Within a client it is first come, first served. A client that comes anew
stands behind those that are waiting for their turn; one that has got its turn goes behind them.

Sequences that had to give up their cells are put back before all others: they have been served
already, and somebody is reading what they wrote.

Invariant: what was added is handed out or dropped exactly once. One thread only. Read next:
`scheduler.py`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator

from server.engine.sequence import Sequence


class WaitingLine:
    """The sequences that wait for a slot. Other threads may ask for `len` and `of_client`."""

    def __init__(self) -> None:
        self._first: deque[Sequence] = deque()
        self._lines: OrderedDict[str, deque[Sequence]] = OrderedDict()  # in order of their turns
        self._counts: Counter[str] = Counter()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of_client(self, client: str) -> int:
        """How many of a client's sequences wait."""
        return self._counts[client]

    def __iter__(self) -> Iterator[Sequence]:
        """All of them: those put back, then line by line."""
        yield from self._first
        for line in self._lines.values():
            yield from line

    def add(self, sequence: Sequence) -> None:
        """Put a sequence at the end of its client's line."""
        self._lines.setdefault(sequence.request.client, deque()).append(sequence)
        self._counted(sequence, 1)

    def put_back(self, sequence: Sequence) -> None:
        """Put a sequence before all others."""
        self._first.appendleft(sequence)
        self._counted(sequence, 1)

    @property
    def next(self) -> Sequence:
        """Whose turn it is; there must be somebody."""
        return self._first[0] if self._first else next(iter(self._lines.values()))[0]

    def pop(self) -> Sequence:
        """Take out `next`; its client goes behind the others."""
        if self._first:
            sequence = self._first.popleft()
        else:
            client, line = next(iter(self._lines.items()))
            sequence = line.popleft()
            if line:
                self._lines.move_to_end(client)
            else:
                del self._lines[client]
        self._counted(sequence, -1)
        return sequence

    def drop(self, unwanted: Callable[[Sequence], bool]) -> list[Sequence]:
        """Take out all that are unwanted; nobody's turn changes."""
        dropped = [sequence for sequence in self if unwanted(sequence)]
        if dropped:
            gone = set(map(id, dropped))
            self._first = deque(s for s in self._first if id(s) not in gone)
            for client, line in list(self._lines.items()):
                kept = deque(s for s in line if id(s) not in gone)
                if kept:
                    self._lines[client] = kept
                else:
                    del self._lines[client]
            for sequence in dropped:
                self._counted(sequence, -1)
        return dropped

    def _counted(self, sequence: Sequence, change: int) -> None:
        client = sequence.request.client
        self._count += change
        self._counts[client] += change
        if not self._counts[client]:
            del self._counts[client]
