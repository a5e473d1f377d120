#!/usr/bin/env python3
"""Plots the JSON of nitinol-perf (time, bus bandwidth and, with --against, the ratio) or of mpi_compare.

Usage: bench/plot.py RESULT.json [RESULT.json ...] -o PLOT.png   (or .svg, .pdf)
"""
import argparse
import collections
import json
import pathlib
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot.py draws with matplotlib, which is not installed: apt install python3-matplotlib")

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter  # noqa: E402


def size_text(size, _position=None):
    for unit in ("", "K", "M", "G"):
        if size < 1024 or unit == "G":
            return f"{size:g}{unit}"
        size /= 1024
    return ""


def lines_of_perf(document):
    """Yields (panel, line, size, time, bus bandwidth, ratio) of each row and library."""
    names = [f"{chr(65 + i)}: {library['version']}" for i, library in enumerate(document["libraries"])]
    for row in document["rows"]:
        panel = f"{row['operation']} {row['type']} {row.get('op', '')}".strip()
        for i, figures in enumerate(row["libraries"]):
            line = f"{names[i]}, {'in' if row['place'] == 'in' else 'out of'} place"
            ratio = row.get("ratio") if i == 0 else None
            yield panel, line, row["bytes"], figures["time_us"], figures["busbw_gbs"], ratio


def lines_of_mpi(document):
    for row in document["rows"]:
        n = row["ranks"]
        factor = (n - 1) / n * (2 if row["operation"] == "all_reduce" else 1)
        for key, line in (("nitinol_us", "Nitinol"), ("mpi_us", document["mpi"])):
            bandwidth = row["bytes"] / row[key] / 1e3 * factor
            ratio = row["ratio"] if key == "nitinol_us" else None
            yield f"{row['operation']} float, {n} processes", line, row["bytes"], row[key], bandwidth, ratio


def read(paths):
    panels = collections.defaultdict(lambda: collections.defaultdict(list))
    are_told_apart = len({path.stem for path in paths}) == len(paths)
    for path in paths:
        name = path.stem if are_told_apart else path
        document = json.loads(path.read_text())
        lines = lines_of_mpi if document["tool"] == "mpi_compare" else lines_of_perf
        for panel, line, *figures in lines(document):
            if figures[0] > 0:
                panels[panel][f"{name}: {line}" if len(paths) > 1 else line].append(figures)
    return panels


def style(axis, title, label):
    axis.set_title(title, fontsize=10)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(FuncFormatter(size_text))
    axis.set_xlabel("bytes")
    axis.set_ylabel(label)
    axis.grid(True, which="major", alpha=0.3)


def draw(panels, output):
    has_ratio = any(row[3] is not None for lines in panels.values() for rows in lines.values() for row in rows)
    columns = 3 if has_ratio else 2
    figure, axes = plt.subplots(len(panels), columns, figsize=(6 * columns, 4 * len(panels)), squeeze=False)
    for (panel, lines), row_axes in zip(panels.items(), axes):
        for line, rows in lines.items():
            rows = sorted(rows)
            sizes = [row[0] for row in rows]
            row_axes[0].plot(sizes, [row[1] for row in rows], marker=".", label=line)
            row_axes[1].plot(sizes, [row[2] for row in rows], marker=".", label=line)
            if has_ratio and rows[0][3] is not None:
                row_axes[2].plot(sizes, [row[3] for row in rows], marker=".", label=line)
        row_axes[0].set_yscale("log")
        style(row_axes[0], panel, "time, us")
        style(row_axes[1], panel, "bus bandwidth, GB/s")
        row_axes[0].legend(fontsize=7)
        if has_ratio:
            style(row_axes[2], f"{panel}: time of the other / time of the first", "ratio (above 1: first is faster)")
            row_axes[2].axhline(1, color="black", linewidth=0.8)
    figure.tight_layout()
    figure.savefig(output, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("-o", "--output", default="plot.png", type=pathlib.Path)
    arguments = parser.parse_args()
    draw(read(arguments.results), arguments.output)
    print(arguments.output)


if __name__ == "__main__":
    main()
