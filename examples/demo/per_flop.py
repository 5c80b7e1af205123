#!/usr/bin/env python3
"""Draws the validation losses of runs over their FLOPs, as FOLDER/NAME-{light,dark}.svg.

  examples/demo/per_flop.py RUNS FOLDER NAME   RUNS has a folder with metrics.jsonl for each run

It needs nothing but Python."""
import json
import sys
from pathlib import Path
from xml.sax.saxutils import escape

THEMES = {
    "light": ("#1f2328", "#d1d9e0", ["#818b98", "#0969da", "#bc4c00"]),
    "dark": ("#f0f6fc", "#3d444d", ["#9198a1", "#388bfd", "#f0883e"]),
}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 60, 20, 44, 48
FONT = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"


def points_of(run):
    """(FLOPs so far, validation loss) of a run, without its first tenth, and without the evaluation
    after the last step, which takes other samples."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    flops = next(line["run"]["flops_per_iteration"] for line in lines if "run" in line)
    losses = {}
    for line in lines:
        if line.get("split") == "validation":
            losses.setdefault(line["iteration"], line["lm loss"])
    every = min(losses)
    points = [(flops * i, loss) for i, loss in losses.items() if i % every == 0]
    return points[len(points) // 10 :]


def svg(runs, theme):
    text, grid, colours = THEMES[theme]
    last = max(points[-1][0] for _, points in runs)
    losses = [loss for _, points in runs for _, loss in points]
    low, high = min(losses), max(losses)

    def at(flops, loss):
        return (
            LEFT + (WIDTH - LEFT - RIGHT) * flops / last,
            TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low),
        )

    lines = []

    def write(x, y, words, anchor="start", size=12, colour=text):
        lines.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" '
            f'text-anchor="{anchor}">{escape(words)}</text>'
        )

    write(LEFT, 20, "Validation loss (nats per byte) by the arithmetic of training", size=14)
    for step in range(5):
        loss = low + (high - low) * step / 4
        y = at(0, loss)[1]
        lines.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{grid}"/>')
        write(LEFT - 8, y + 4, f"{loss:.2f}", "end")
        x = at(last * step / 4, low)[0]
        write(x, HEIGHT - BOTTOM + 18, f"{last * step / 4e12:.0f}", "middle")
    write(WIDTH / 2, HEIGHT - 10, "TFLOP of all steps", "middle")
    for i, (name, points) in enumerate(runs):
        path = "L".join("{:.1f} {:.1f}".format(*at(*point)) for point in points)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colours[i]}" stroke-width="2"/>')
        y = TOP + 14 + 18 * i
        lines.append(f'<path d="M{WIDTH - 330} {y}h20" stroke="{colours[i]}" stroke-width="3"/>')
        write(WIDTH - 302, y + 4, f"{name}: {points[-1][1]:.3f} at the end", colour=text)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}" role="img">\n'
        "<title>Validation loss by FLOPs</title>\n" + "\n".join(lines) + "\n</svg>\n"
    )


def main():
    source, folder, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    found = sorted(source.glob("*/metrics.jsonl"), key=lambda path: path.stat().st_mtime)
    runs = [(path.parent.name, points_of(path.parent)) for path in found]
    for theme in THEMES:
        (folder / f"{name}-{theme}.svg").write_text(svg(runs, theme))


if __name__ == "__main__":
    main()
