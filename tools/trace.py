#!/usr/bin/env python3
"""Merges what the ranks of a communicator dumped: `trace.py [-o MERGED] DUMP...`

The dumps come from nitinolCommDump, NITINOL_DUMP_FILE or `nitinol-ras --dump`; a folder stands for the *.json in it. Says
in one sentence who waits for whom, and with -o writes one trace of all ranks for Chrome's or Perfetto's viewer.
"""
import argparse
import json
import pathlib
import sys

MOST_TOLD = 3  # messages of one rank


def files_of(paths):
    """The dumps, with folders replaced by what is in them."""
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        else:
            yield path


def ranks_text(ranks):
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def number_text(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def capitalised(text):
    return text[:1].upper() + text[1:]


class Operation:
    """A collective, send or receive of one rank."""

    def __init__(self, event):
        about = event["args"]
        self.name = event["name"]
        self.number = about["number"]
        self.state = about["state"]
        self.launch = about.get("launch", 0)
        self.direction = about.get("direction")
        self.peer = about.get("peer")

    def is_message(self):
        return self.direction is not None

    def is_open(self):
        return self.state not in ("ended", "captured")

    def details(self):
        """What both ends of a message must agree on."""
        return self.name.partition("(")[2]


class Rank:
    """What the dump of one rank says of where it is."""

    def __init__(self, dump):
        self.rank = dump["rank"]
        self.issued = dump["issued"]
        self.messages_issued = dump.get("messages", 0)
        self.captured = dump.get("captured", 0)
        self.failure = dump["failure"]
        self.operations = [Operation(event) for event in dump["traceEvents"] if event["ph"] == "i"]
        self.collectives = {each.number: each for each in self.operations if not each.is_message() and each.number > 0}
        self.messages = [each for each in self.operations if each.is_message()]
        self.begun = dump["begun"] if dump.get("timesKnown") else None  # runs of graphs count there
        unfinished = [Operation(event) for event in dump["traceEvents"] if event["ph"] == "B"]
        self.is_idle = dump.get("idle") is True
        self.inside = []
        if not self.is_idle:
            self.inside = unfinished[:1]
        if not self.inside and dump.get("idle") is False:
            self.inside = self.first_open()
        self.is_known = self.is_idle or bool(self.inside)

    def first_open(self):
        """What the rank is in: all launches of a communicator run in their order. Nothing if that is not known."""
        still_open = [each for each in self.operations if each.is_open()]
        if self.captured or not still_open or any(each.state == "unknown" for each in still_open):
            return []
        launch = min(each.launch for each in still_open)
        inside = [each for each in still_open if each.launch == launch]
        collectives = [each for each in inside if not each.is_message()]
        return collectives[:1] or inside

    def collective(self):
        """The collective that it is in, or None."""
        return self.inside[0] if self.inside and not self.inside[0].is_message() else None

    def reached(self):
        """The number of the last collective that it has come to; None if that is not known."""
        if self.begun is not None:
            return self.begun
        if self.collective():
            return self.collective().number
        ended = [number for number, each in self.collectives.items() if each.state == "ended"]
        return self.issued if self.is_idle else max(ended, default=0) if self.inside else None

    def last_text(self):
        """The last that it has issued."""
        counted = [each for each in self.operations if each.state != "captured"]
        if not counted:
            return "nothing"
        return counted[-1].name if self.issued or self.messages_issued else "nothing"

    def doings(self):
        """What it does, to be put behind "rank 1, which "."""
        if self.is_idle:
            last = self.last_text()
            return "has issued nothing" if last == "nothing" else f"has finished what it issued, at last {last}"
        if self.inside:
            return f"is in {self.inside[0].name}"
        return f"has issued {number_text(self.issued, 'collective')}, and no more is known"


def grouped(pairs):
    """Ranks by what is said of them: pairs of text and rank, in the order in which the texts come first."""
    groups = {}
    for text, rank in pairs:
        groups.setdefault(text, []).append(rank)
    return groups.items()


class Job:
    """The ranks of one communicator, as far as there are dumps."""

    def __init__(self, dumps):
        self.by_rank = {dump["rank"]: Rank(dump) for dump in sorted(dumps, key=lambda dump: dump["rank"])}
        self.ranks = list(self.by_rank.values())
        self.missing = [rank for rank in range(dumps[0]["ranks"]) if rank not in self.by_rank]
        self.has_graphs = any(each.captured for each in self.ranks)

    def sentence(self):
        said = self.mismatch()
        if not said:
            said = (self.waits() or self.ends()) + self.unknown()
        if self.missing and not any("there is no dump" in each for each in said):
            said.append(f"there is no dump of {ranks_text(self.missing)}")
        failure = next((each.failure for each in self.ranks if each.failure), "")
        if failure:
            said.append(f"first failure: {failure}")
        return capitalised("; ".join(said)).rstrip(".") + "."

    def mismatch(self):
        """The first calls that are not the same on all ranks."""
        numbers = {each.collective().number for each in self.ranks if each.collective()}
        if not self.has_graphs:  # else it depends on what runs when
            numbers |= {number for each in self.ranks for number in each.collectives}
        for number in sorted(numbers):
            calls = grouped((name, each.rank) for each in self.ranks for name in self.calls_of(each, number))
            if len(calls) > 1:
                return [
                    "the calls do not match: "
                    + "; ".join(f"{ranks_text(who)} {'calls' if len(who) == 1 else 'call'} {name}" for name, who in calls)
                ]
        for each in self.ranks:
            for message in each.messages:
                other = self.other_end(each, message)
                if other and other.details() != message.details():
                    return [f"the calls do not match: rank {each.rank} calls {message.name}; "
                            f"rank {message.peer} calls {other.name}"]
        return []

    def calls_of(self, rank, number):
        inside = rank.collective()
        if inside and inside.number == number:
            return [inside.name]
        return [rank.collectives[number].name] if number in rank.collectives and not self.has_graphs else []

    def other_end(self, rank, message):
        """The call of the peer that belongs to a message; None if its dump has none."""
        peer = self.by_rank.get(message.peer)
        if peer is None or peer is rank or message.number == 0 or self.has_graphs:
            return None
        ends = [each for each in peer.messages if each.peer == rank.rank and each.direction != message.direction]
        return next((each for each in ends if each.number == message.number), None)

    def waits(self):
        """Who waits for whom."""
        said = []
        in_collectives = [each for each in self.ranks if each.collective()]
        for name, who in grouped((each.collective().name, each.rank) for each in in_collectives):
            number = self.by_rank[who[0]].collective().number
            late = self.late_for(number)
            if late:
                said.append(f"{ranks_text(who)} {'waits' if len(who) == 1 else 'wait'} in {name} for " + ", and ".join(late))
            elif len(who) == len(self.ranks):
                said.append(f"all ranks are in {name}")
            else:
                said.append(f"{ranks_text(who)} {'is' if len(who) == 1 else 'are'} in {name}, to which all have come")
        for each in self.ranks:
            if each.inside and not each.collective():
                said.append(self.message_waits(each))
        return said

    def late_for(self, number):
        """The ranks that have not come to a collective, each with what it does instead."""
        def late(rank):
            reached = rank.reached()
            return rank.issued < number and not rank.captured if reached is None else reached < number

        late_ranks = [each for each in self.ranks if late(each)]
        said = [f"{ranks_text(who)}, which {self.in_plural(text, who)}"
                for text, who in grouped((each.doings(), each.rank) for each in late_ranks)]
        return said + self.missing_text()

    @staticmethod
    def in_plural(text, who):
        verb, rest = text.split(" ", 1)
        return text if len(who) == 1 else {"is": "are", "has": "have"}[verb] + " " + rest.replace("it ", "they ")

    def missing_text(self):
        return [f"{ranks_text(self.missing)}, of which there is no dump"] if self.missing else []

    def message_waits(self, rank):
        """Which messages of a rank's group wait for their other end."""
        reasons = [(reason, message.name) for message in rank.inside for reason in [self.reason(rank, message)] if reason]
        if not reasons:
            return f"rank {rank.rank} is in {self.names_text([each.name for each in rank.inside])}"
        return f"rank {rank.rank} waits in " + " and in ".join(
            f"{self.names_text(names)} {reason}" for reason, names in grouped(reasons))

    @staticmethod
    def names_text(names):
        text = " and ".join(names[:MOST_TOLD])
        return text + (f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else "")

    def reason(self, rank, message):
        """Why a message does not end, or is not known to; None if both its ends are there."""
        if message.peer == rank.rank or message.number == 0:
            return None
        peer = self.by_rank.get(message.peer)
        if peer is None:
            return f"for rank {message.peer}, of which there is no dump"
        if peer.captured:
            return f"for rank {peer.rank}, of whose graphs it is not known what they run"
        other = self.other_end(rank, message)
        if other is None:
            later = [each for each in peer.messages if each.peer == rank.rank and each.direction != message.direction]
            if any(each.number > message.number for each in later):
                return None  # it was issued so long ago that it is not kept
            if not later and peer.messages_issued > len(peer.messages):
                return f"for rank {peer.rank}, whose dump does not reach back to it"
            return f"for rank {peer.rank}, which has not issued the other end: it {peer.doings()}"
        if other.state == "ended" or any(each is other for each in peer.inside):
            return None
        return f"for rank {peer.rank}, which has issued the other end, but {peer.doings()}"

    def ends(self):
        """That all is finished, if it is."""
        finished = [each for each in self.ranks if each.is_idle]
        if not finished or len(finished) != len(self.ranks):
            return []
        counts = grouped((self.count_text(each), each.rank) for each in finished)
        text = "; ".join(what if len(counts) == 1 else f"{ranks_text(who)}: {what}" for what, who in counts)
        return [f"all ranks {'that were dumped ' if self.missing else ''}have finished what they issued ({text})"]

    @staticmethod
    def count_text(rank):
        parts = [number_text(rank.issued, "collective")]
        if rank.messages_issued:
            parts.append(number_text(rank.messages_issued, "message"))
        if rank.captured:
            parts.append(f"{rank.captured} in graphs")
        return ", ".join(parts)

    def unknown(self):
        """Of whom it is not known how far they have come, and what can be said all the same."""
        unknown = [each for each in self.ranks if not each.is_known]
        if not unknown:
            return []
        said = [f"how far {ranks_text([each.rank for each in unknown])} "
                f"{'has' if len(unknown) == 1 else 'have'} come is not known"]
        graphs = [each.rank for each in unknown if each.captured]
        if graphs:
            said[0] += f", as launches of graphs are not counted ({ranks_text(graphs)})"
        return said + self.ahead()

    def ahead(self):
        """The first collective that some have issued and others, of whom no more is known, have not."""
        least = min(self.ranks, key=lambda each: each.issued).issued
        most = [each for each in self.ranks if each.issued > least]
        if not most or self.has_graphs:
            return []
        name = next((each.collectives[least + 1].name for each in most if least + 1 in each.collectives),
                    f"collective number {least + 1}")
        behind = [each.rank for each in self.ranks if each.issued == least]
        return [f"{name} was issued by {ranks_text([each.rank for each in most])} and not by {ranks_text(behind)}"]


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
        print((f"{name[:8]}: " if len(communicators) > 1 else "") + Job(dumps).sentence())
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": sorted(events, key=lambda event: event["ts"])}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
