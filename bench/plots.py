"""Draw the figures that `bench/engine.py --json` kept.

    python bench/plots.py FIGURES.json bench/engine.png

Needs matplotlib, which is no dependency of this project.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def draw(rows: list[dict[str, Any]], to: Path) -> None:
    """Milliseconds an answer, one panel for each number of clients, one bar for each contender."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    rows = [row for row in rows if row["constrained"] and row["temperature"] == 0]
    panels = list(dict.fromkeys(row["clients"] for row in rows))
    schemas = list(dict.fromkeys(row["schema"] for row in rows))
    names = list(dict.fromkeys(row["who"] for row in rows))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 4), squeeze=False)
    width = 0.8 / len(names)
    for axis, clients in zip(axes[0], panels, strict=True):
        for offset, name in enumerate(names):
            of = {r["schema"]: r for r in rows if r["clients"] == clients and r["who"] == name}
            heights = [of[s]["total_ms"] if s in of else 0 for s in schemas]
            at = [index + (offset - (len(names) - 1) / 2) * width for index in range(len(schemas))]
            axis.bar(at, heights, width, label=name)
        axis.set_title(f"{clients} client{'s' if clients > 1 else ''}")
        axis.set_xticks(range(len(schemas)), schemas, rotation=20)
        axis.set_ylabel("ms an answer, median")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(to, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
