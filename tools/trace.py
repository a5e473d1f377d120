#!/usr/bin/env python3
"""Merges what the ranks of a communicator dumped: `trace.py [-o MERGED] DUMP...`

The dumps come from nitinolCommDump, NITINOL_DUMP_FILE or `nitinol-ras --dump`; a folder stands for the *.json in it. Says
in one sentence who waits for whom, and with -o writes one trace of all ranks for Chrome's or Perfetto's viewer.
"""
import argparse
import json
import pathlib
import sys


def files_of(paths):
    """The dumps, with folders replaced by what is in them."""
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        else:
            yield path


def last_event(dump, number):
    """What the rank called under this number: as it ran, if that is known, which stands behind what was issued."""
    for event in reversed(dump["traceEvents"]):
        if event["args"]["number"] == number:
            return event["name"]
    return f"collective number {number}" if number else "nothing yet"


def ranks_text(ranks):
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def verdict(dumps):
    """One sentence on the dumps of one communicator."""
    ranks = dumps[0]["ranks"]
    by_rank = {dump["rank"]: dump for dump in dumps}
    missing = [rank for rank in range(ranks) if rank not in by_rank]
    furthest = max(dump["begun"] if dump["progressKnown"] else dump["issued"] for dump in dumps)
    waiting = [r for r, d in sorted(by_rank.items()) if d["begun"] == furthest and d["ended"] < furthest]
    behind = [r for r, d in sorted(by_rank.items()) if (d["begun"] if d["progressKnown"] else d["issued"]) < furthest]
    names = {rank: last_event(dump, furthest) for rank, dump in by_rank.items() if rank in waiting}
    if len(set(names.values())) > 1:
        return "The calls do not match: " + "; ".join(f"rank {rank} is in {name}" for rank, name in sorted(names.items())) + "."
    if not waiting:
        text = f"All ranks that were dumped have finished what they issued ({furthest} collectives)"
    elif behind or missing:
        text = f"{ranks_text(waiting).capitalize()} {'waits' if len(waiting) == 1 else 'wait'} in {names[waiting[0]]}"
        parts = [f"rank {r}, which is at {last_event(by_rank[r], by_rank[r]['begun'])}" for r in behind]
        if missing:
            parts.append(f"{ranks_text(missing)}, of which there is no dump")
        text += " for " + " and ".join(parts)
    else:
        text = f"All ranks are in {names[waiting[0]]}"
    failure = next((dump["failure"] for dump in dumps if dump["failure"]), "")
    return text + (f"; first failure: {failure}" if failure else "") + "."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", help="file for the merged trace")
    parser.add_argument("dumps", nargs="+", help="files, or folders of them")
    arguments = parser.parse_args()
    communicators = {}
    events = []
    for path in files_of(arguments.dumps):
        with open(path, encoding="utf-8") as file:
            dump = json.load(file)
        communicators.setdefault(dump["communicator"], []).append(dump)
        events += dump["traceEvents"]
    for name, dumps in communicators.items():
        print((f"{name[:8]}: " if len(communicators) > 1 else "") + verdict(dumps))
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": sorted(events, key=lambda event: event["ts"])}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
