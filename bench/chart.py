#!/usr/bin/env python3
"""Draws a result of the suite as bench/chart-light.svg and bench/chart-dark.svg.

It also writes the result's table into README.md and its targets into bench/README.md, between the
marks <!-- bench --> and <!-- /bench -->, so that none of them can differ from what was measured.
More results, of other cases, get tables of their own behind it. It needs nothing but Python.

  bench/chart.py [RESULT.json …]   default: bench/results/suite.json
  bench/chart.py --publish         also keeps each as bench/results/DATE_PROCESSOR_suite.json, or
                                   under its name if it lies there, and links to it in README.md"""
import argparse
import json
import re
import shutil
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
BARS = ("transformers", "eager", "compiled", "megatron")
NAMES = {
    "transformers": "transformers",
    "eager": "PyTorch eager",
    "compiled": "PyTorch compiled",
    "megatron": "megatron",
}
KINDS = ("step", "experts", "attention")
THEMES = {
    "light": {
        "text": "#1f2328",
        "quiet": "#59636e",
        "grid": "#d1d9e0",
        "bound": "#1f2328",
        "transformers": "#d8dee4",
        "eager": "#afb8c1",
        "compiled": "#818b98",
        "megatron": "#0969da",
        "inside": "#ffffff",
    },
    "dark": {
        "text": "#f0f6fc",
        "quiet": "#9198a1",
        "grid": "#3d444d",
        "bound": "#f0f6fc",
        "transformers": "#3d444d",
        "eager": "#656c76",
        "compiled": "#9198a1",
        "megatron": "#1f6feb",
        "inside": "#ffffff",
    },
}
WIDTH, LEFT, GAP, TOP, BAR, SPACE, BOTTOM = 960, 190, 60, 74, 13, 16, 48
FONT = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"


def short_title(entry):
    """A case in at most two short lines."""
    if entry["kind"] == "experts":
        return [", ".join(entry["title"].split(", ")[:2]), f"{entry['tokens']} tokens"]
    if entry["kind"] == "attention":
        shape = entry["title"].removeprefix("causal attention ").partition(", ")[0]
        return ["causal attention", shape + (", shared keys" if "groups" in entry["title"] else "")]
    name, _, shape = entry["title"].partition(", ")
    return [name, shape]


def charted(result):
    """{dtype: {case name: entry}} of the cases that have both ours and eager."""
    panels = {}
    for entry in result["cases"]:
        if entry["kind"] in KINDS and {"megatron", "eager"} <= entry["contenders"].keys():
            panels.setdefault(entry["dtype"], {})[entry["name"]] = entry
    return panels


def speeds(entry):
    """Times as fast as PyTorch eager."""
    eager = entry["contenders"]["eager"]["median_ms"]
    found = {
        name: eager / entry["contenders"][name]["median_ms"]
        for name in BARS
        if name in entry["contenders"]
    }
    return found | ({"bound": eager / entry["gemm_bound_ms"]} if entry["gemm_bound_ms"] else {})


class Drawing:
    """Lines of SVG in the colours of a theme."""

    def __init__(self, theme):
        self.colours_ = THEMES[theme]
        self.lines_ = []

    def text(self, x, y, words, colour="text", size=12, anchor="start", weight="normal"):
        self.lines_.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{self.colours_[colour]}" font-size="{size}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
        )

    def bar(self, x, y, width, height, colour):
        self.lines_.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="2" '
            f'fill="{self.colours_[colour]}"/>'
        )

    def line(self, x1, y1, x2, y2, colour, width=1, dashes=""):
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.lines_.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{self.colours_[colour]}" stroke-width="{width}"{dashed}/>'
        )

    def svg(self, height, title):
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" role="img">\n'
            f"<title>{escape(title)}</title>\n" + "\n".join(self.lines_) + "\n</svg>\n"
        )


def draw_legend(drawing, has_bound):
    x = LEFT
    for name in reversed(BARS):
        drawing.bar(x, 36, 12, 12, name)
        drawing.text(x + 17, 46, NAMES[name])
        x += 30 + 7 * len(NAMES[name])
    if has_bound:
        drawing.line(x + 6, 34, x + 6, 50, "bound", 2)
        drawing.text(x + 15, 46, "the step's GEMMs alone")


def draw_case(drawing, x, y, scale, entry):
    found = speeds(entry)
    for index, name in enumerate(reversed(BARS)):
        if name in found:
            top = y + index * BAR
            drawing.bar(x, top, found[name] * scale, BAR - 2, name)
            end, label = x + found[name] * scale, f"{found[name]:.2f} ×"
            if name == "megatron" and found[name] * scale > 60:
                drawing.text(end - 5, top + BAR - 3.5, label, "inside", 10.5, "end", "600")
            elif name != "eager":
                drawing.text(end + 4, top + BAR - 3.5, label, "quiet", 10.5)
    if "bound" in found:
        drawing.line(
            x + found["bound"] * scale,
            y - 4,
            x + found["bound"] * scale,
            y + len(BARS) * BAR + 2,
            "bound",
            2,
        )


def draw(result, theme):
    panels, drawing = charted(result), Drawing(theme)
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    width = (WIDTH - LEFT - GAP * len(panels)) / max(1, len(panels))
    height = TOP + len(names) * (len(BARS) * BAR + SPACE) + BOTTOM
    most = (
        max(
            value
            for panel in panels.values()
            for entry in panel.values()
            for value in speeds(entry).values()
        )
        * 1.04
    )
    drawing.text(LEFT, 20, "Training steps: times as fast as PyTorch eager", size=15, weight="600")
    draw_legend(
        drawing,
        any(entry["gemm_bound_ms"] for panel in panels.values() for entry in panel.values()),
    )
    for index, (dtype, panel) in enumerate(panels.items()):
        x, scale = LEFT + index * (width + GAP), width / most
        drawing.text(
            x,
            TOP - 8,
            {"bf16": "bf16 (autocast)", "fp32": "fp32"}[dtype],
            "quiet",
            12,
            weight="600",
        )
        for tick in range(int(most) + 1):
            drawing.line(x + tick * scale, TOP, x + tick * scale, height - BOTTOM, "grid")
            drawing.text(
                x + tick * scale, height - BOTTOM + 15, f"{tick} ×", "quiet", 10.5, "middle"
            )
        for row, name in enumerate(names):
            y = TOP + SPACE / 2 + row * (len(BARS) * BAR + SPACE)
            if index == 0:
                for line, words in enumerate(
                    short_title(next(panel[name] for panel in panels.values() if name in panel))
                ):
                    drawing.text(
                        LEFT - 14, y + 22 + 15 * line, words, "quiet" if line else "text", 12, "end"
                    )
            if name in panel:
                draw_case(drawing, x, y, scale, panel[name])
    drawing.text(WIDTH - 10, height - 8, where(result), "quiet", 10.5, "end")
    return drawing.svg(height, "Training steps: times as fast as PyTorch eager")


def where(result):
    machine = result["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores, one run, {machine['date']}"


def table(result):
    """Markdown: milliseconds of every case, ratios, and the share of the bound."""
    lines = [
        "| | megatron | PyTorch eager | PyTorch compiled | transformers | of GEMM bound |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for dtype, panel in charted(result).items():
        for entry in panel.values():
            rows = entry["contenders"]
            ours = rows["megatron"]["median_ms"]
            cells = [
                f"{entry['title'] if entry['kind'] == 'step' else ', '.join(short_title(entry))}"
                f", {dtype}",
                f"**{ours:.0f} ms**",
            ]
            cells += [
                f"{rows[name]['median_ms']:.0f} ms ({rows[name]['median_ms'] / ours:.2f} ×)"
                if name in rows
                else ""
                for name in ("eager", "compiled", "transformers")
            ]
            cells.append(
                f"{100 * entry['gemm_bound_ms'] / ours:.0f} %" if entry["gemm_bound_ms"] else ""
            )
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def target_table(result):
    lines = [
        "| target | wanted | measured | at most possible | |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for row in result["targets"]:
        unit, limit = row["unit"], "≤" if row.get("at_most") else "≥"
        possible = f"{row['possible']:.2f} {unit}" if row["possible"] else ""
        lines.append(
            f"| {row['what']} | {limit} {row['target']} {unit} | {row['measured']:.2f} {unit} "
            f"| {possible} | {'met' if row['met'] else 'not met'} |"
        )
    return lines


def noise(result):
    """Returns a sentence for a run on a machine that others used, in a list; else an empty list.
    The sentence says how far apart the quartiles of a contender's steps lie, over its median."""
    spreads = sorted(
        row["spread"]
        for entry in result["cases"]
        for name, row in entry["contenders"].items()
        if name in BARS
    )
    if not spreads or spreads[-1] <= 0.1:
        return []
    return [
        "The machine was not idle: the quartiles of a contender's steps lie "
        f"{100 * spreads[len(spreads) // 2]:.0f} % of its median apart in the middle of all "
        f"rows, {100 * spreads[-1]:.0f} % at most."
    ]


def measured(result, kept):
    """Says where a table was measured, and then the table."""
    source = f", [every step](bench/results/{kept.name})" if kept else ""
    return [
        (
            f"Median step ({where(result)}{source}); in brackets how many times as long the peer "
            "takes."
        ),
        *noise(result),
        "",
        *table(result),
    ]


def readme_section(results, kept):
    lines = [
        "<picture>",
        '<source media="(prefers-color-scheme: dark)" srcset="bench/chart-dark.svg">',
        '<img alt="Training steps: times as fast as PyTorch eager" src="bench/chart-light.svg">',
        "</picture>",
        "",
        "All start from the same weights and tokens, and their losses agree step by step",
        "([how it is measured, and how to read it](bench/README.md)).",
    ]
    for result, file in zip(results, kept, strict=True):
        lines += ["", *measured(result, file)]
    return lines


def fill(page, lines):
    """Puts the lines between the marks of a page."""
    path = ROOT / page
    text = path.read_text()
    if BEGIN not in text:
        raise SystemExit(f"{page} has no line {BEGIN}")
    content = "\n".join([BEGIN, *lines, END])
    path.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: content, text, flags=re.DOTALL))


def keep(source, result):
    """The result under a name that says when and where."""
    folder = ROOT / "bench/results"
    if source.resolve().parent == folder and not source.name.startswith("suite"):
        return source
    cpu = re.sub(r"[^a-z0-9]+", "-", result["machine"]["cpu"].lower()).strip("-")
    date, cores = result["machine"]["date"], result["machine"]["cores"]
    kept = folder / f"{date}_{cpu}-{cores}-cores_{source.stem}.json"
    shutil.copyfile(source, kept)
    return kept


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "results", nargs="*", type=Path, default=[ROOT / "bench/results/suite.json"]
    )
    parser.add_argument("--publish", action="store_true")
    parser.add_argument(
        "--folder", type=Path, help="write the drawings there and leave the pages alone"
    )
    options = parser.parse_args()
    results = [json.loads(path.read_text()) for path in options.results]
    for theme in THEMES:
        path = (options.folder or ROOT / "bench") / f"chart-{theme}.svg"
        path.write_text(draw(results[0], theme))
    if options.folder is None:
        kept = [
            keep(path, result) if options.publish else None
            for path, result in zip(options.results, results, strict=True)
        ]
        fill("README.md", readme_section(results, kept))
        targets = [
            line
            for result in results
            for line in ("", f"{where(result)}:", "", *target_table(result))
        ]
        fill("bench/README.md", targets[1:])


if __name__ == "__main__":
    main()
