#!/usr/bin/env python3
"""Merges what the ranks of a communicator dumped: `nitinol-trace [-o MERGED] DUMP...`

The dumps come from nitinolCommDump, NITINOL_DUMP_FILE or `nitinol-ras --dump`; a folder stands for the *.json in it. Says
in one sentence who waits for whom, and with -o writes one trace of all ranks for Chrome's or Perfetto's viewer. Files
that are no dumps are left out and named: then the exit status is 2.
"""
import argparse
import json
import pathlib
import re
import signal
import sys

MOST_TOLD = 3  # messages of one rank
MOST_RANKS = 1_000_000  # more are none: the file is broken
NUMBER = (int, float)
OR_NONE = {kind: (kind, type(None)) for kind in (int, str)}
MERGED_BEGINS = b'{"traceEvents"'  # as dumps do not: those tell first whose they are
STREAM_OF_EACH_THREAD = "0x2"  # cudaStreamPerThread: the handle tells none apart


def ranks_text(ranks):
    """As of health monitoring: "rank 3", "ranks 0, 1, 4-7"."""
    runs = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts = [part for first, last in runs
             for part in ([f"{first}-{last}"] if last > first + 1 else map(str, range(first, last + 1)))]
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(parts)


def number_text(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def capitalised(text):
    return text[:1].upper() + text[1:]


def field(about, name, kind, *default):
    """What a dump says under a name. Without a default it must say it, and it must be of that kind."""
    value = about.get(name, *default) if default else about[name]
    if not isinstance(value, kind):
        raise ValueError(name)
    return value


class Operation:
    """A collective, send or receive of one rank."""

    def __init__(self, event):
        about = field(event, "args", dict)
        self.name = field(event, "name", str)
        self.number = field(about, "number", int)
        self.state = field(about, "state", str)
        self.launch = field(about, "launch", int, 0)
        self.direction = field(about, "direction", OR_NONE[str], None)
        self.peer = field(about, "peer", int) if self.is_message() else None
        self.algorithm = field(about, "algorithm", OR_NONE[str], None)
        self.stream = field(about, "stream", OR_NONE[str], None)
        self.time = field(event, "ts", NUMBER)

    def is_message(self):
        return self.direction is not None

    def is_open(self):
        return self.state not in ("ended", "captured")

    def details(self):
        """What both ends of a message must agree on."""
        return self.name.partition("(")[2]

    def root(self):
        """None if the collective has none."""
        root = re.search(r"root (\d+)\)$", self.name)
        return int(root[1]) if root else None

    def needed(self, rank, others):
        """For which of the others a rank that is in the collective waits."""
        root = self.root()
        if root is None or rank == root:
            return others
        if root in others and (self.name.startswith(("Broadcast", "Scatter")) or self.algorithm == "OneShot"):
            return [root]
        return [] if self.algorithm == "OneShot" else others  # else it may wait for one that passes on


class Rank:
    """What the dump of one rank says of where it is."""

    def __init__(self, dump, path):
        self.path = path
        self.written = path.stat().st_mtime_ns
        self.events = dump["traceEvents"]
        self.rank = field(dump, "rank", int)
        self.ranks = field(dump, "ranks", int)
        if not 0 <= self.rank < self.ranks <= MOST_RANKS:
            raise ValueError("rank")
        self.communicator = field(dump, "communicator", str)
        self.place = (field(dump, "host", OR_NONE[str], None), field(dump, "pid", OR_NONE[int], None),
                      field(dump, "device", OR_NONE[int], None))
        self.issued = field(dump, "issued", int)
        self.messages_issued = field(dump, "messages", int, 0)
        self.captured = field(dump, "captured", int, 0)
        self.through = field(dump, "launchesThrough", OR_NONE[int], None)  # how many launches have ended, if known
        self.failure = field(dump, "failure", str)
        self.is_idle = dump.get("idle") is True
        for event in field(dump, "traceEvents", list):
            field(event, "ts", NUMBER)
        self.operations = [Operation(event) for event in dump["traceEvents"] if event["ph"] == "i"]
        self.collectives = {each.number: each for each in self.operations if not each.is_message() and each.number > 0}
        self.messages = [each for each in self.operations if each.is_message()]
        self.begun = field(dump, "begun", int) if dump.get("timesKnown") else None  # runs of graphs count there
        self.runs = [Operation(event) for event in dump["traceEvents"] if event["ph"] in ("B", "X")]
        self.held_behind = None  # an operation of another communicator in its stream, and that communicator
        self.find_place(dump)

    def age(self):
        """The more, the later it was dumped."""
        return (self.issued + self.messages_issued + self.captured, bool(self.failure), self.written)

    def find_place(self, dump):
        """What it is in, or what it has issued and not begun, or one of the two: all launches run in their order."""
        self.inside, self.held, self.is_certain, self.is_behind_kept = [], [], True, False
        if not self.is_idle:
            self.inside = [each for each in self.runs if each.state == "begun"][:1] or self.awaited(dump)
        if not self.inside and dump.get("idle") is False:
            first = self.first_open()
            if any(each.state == "begun" for each in first):
                self.inside = first
            elif self.begins_are_known(dump, first):
                self.held = first
            else:
                self.inside, self.is_certain = first, False
        self.is_known = self.is_idle or bool(self.inside or self.held)

    def begins_are_known(self, dump, first):
        """Whether what is said to be issued is known not to have begun."""
        if any(each.state == "setup" for each in first):
            return True
        return dump.get("beginsKnown", self.begun is not None and not any(each.is_message() for each in first))

    def awaited(self, dump):
        """The messages for which it has waited for long, where what is kept of it does not tell what it is in."""
        is_kept = any(each.state == "begun" for each in self.operations)
        has_empty = any(each.number == 0 and each.state != "captured" for each in self.messages)  # numbers differ then
        if is_kept or has_empty or dump.get("idle") is not False:
            return []
        return [Operation({"name": each["name"], "ts": 0, "args": {**each, "state": "begun"}})
                for each in dump.get("awaited", [])]

    def first_open(self):
        """The first launch that has not ended; nothing if that is not known."""
        still_open = [each for each in self.operations if each.is_open()]
        if self.captured or not still_open or any(each.state == "unknown" for each in still_open):
            return []
        launch = min(each.launch for each in still_open)
        self.is_behind_kept = not self.keeps_first(launch)
        if self.is_behind_kept:
            return []
        first = [each for each in still_open if each.launch == launch]
        collectives = [each for each in first if not each.is_message()]
        return collectives[:1] or first

    def keeps_first(self, launch):
        """Whether no launch before the first one that is open of those kept has not ended either."""
        if self.through is not None:
            return launch <= self.through + 1
        keeps_all = self.issued <= len(self.collectives) and self.messages_issued <= len(self.messages)
        return keeps_all or any(each.state == "ended" for each in self.operations)

    def collective(self):
        """The collective that it is in, or None."""
        return self.inside[0] if self.inside and not self.inside[0].is_message() else None

    def reached(self):
        """The number of the last collective that it has come to; None if that is not known."""
        if self.begun is not None:
            return self.begun
        if self.collective():
            return self.collective().number
        still_open = [number for number, each in self.collectives.items() if each.is_open()]
        return min(still_open, default=self.issued + 1) - 1 if self.is_known else None

    def last_text(self):
        """The last that it has come to; "" if there is none, None if it may have run in a graph that does not tell."""
        issued = [each for each in self.operations if each.state != "captured"]
        if self.captured and self.begun is None:
            return None
        if self.captured and self.begun:
            run = next((each for each in self.runs if each.number == self.begun), None)
            if not run:
                return f"collective number {self.begun}"
            issued = [each for each in issued if each.is_message() and each.time > run.time] or [run]
        return issued[-1].name if issued and (self.issued or self.messages_issued or self.begun) else ""

    def doings(self, many=False):
        """What it does, to be put behind "rank 1, which "; of several ranks that do the same if `many`."""
        have, are, they = ("have", "are", "they") if many else ("has", "is", "it")
        if self.is_idle:
            last = self.last_text()
            if last is None:
                return f"{have} finished what {they} issued ({self.count_text()})"
            return f"{have} finished what {they} issued, at last {last}" if last else f"{have} issued nothing"
        if self.inside:
            return f"{are} in {self.inside[0].name}" if self.is_certain else f"{have} not ended {self.inside[0].name}"
        if self.held and self.held[0].state == "setup":
            return f"{are} still setting up {self.names_text(self.held)}"
        if self.held:
            pronoun = "it has" if len(self.held) == 1 else "they have"
            return f"{have} issued {self.names_text(self.held)}, but {pronoun} not begun{self.behind_text()}"
        if self.begun is not None:
            last = next((each.name for each in self.runs if each.number == self.begun), f"collective number {self.begun}")
            ended = f"{have} {'begun' if self.is_behind_kept else 'ended'} {last}" if self.begun else f"{have} not begun any collective"
            return ended + ", and no more is known"
        return f"{have} issued {number_text(self.issued, 'collective')}, and no more is known"

    def behind_text(self):
        """What the first that has not begun stands behind."""
        if not self.held_behind:
            return ""
        operation, communicator = self.held_behind
        return f": before it in its stream is {operation.name} of communicator {communicator[:8]}"

    def find_held_behind(self, by_stream):
        """Looks among the open operations of all communicators, by place and stream."""
        if not self.held or self.held[0].stream in (None, STREAM_OF_EACH_THREAD):
            return
        mine = self.held[0]
        before = [(each, communicator) for each, communicator in by_stream.get((self.place, mine.stream), [])
                  if communicator != self.communicator and each.time < mine.time]
        self.held_behind = min(before, key=lambda found: (found[0].state != "begun", found[0].time), default=None)

    def count_text(self):
        parts = [number_text(self.issued, "collective")]
        if self.messages_issued:
            parts.append(number_text(self.messages_issued, "message"))
        if self.captured:
            parts.append(f"{self.captured} in graphs")
        return ", ".join(parts)

    @staticmethod
    def names_text(operations):
        text = " and ".join(each.name for each in operations[:MOST_TOLD])
        return text + (f" and {len(operations) - MOST_TOLD} more" if len(operations) > MOST_TOLD else "")


def grouped(pairs):
    """Ranks by what is said of them: pairs of text and rank, in the order in which the texts come first."""
    groups = {}
    for text, rank in pairs:
        groups.setdefault(text, []).append(rank)
    return groups.items()


class Job:
    """The ranks of one communicator, as far as there are dumps."""

    def __init__(self, ranks):
        self.by_rank = {each.rank: each for each in sorted(ranks, key=lambda each: each.rank)}
        self.ranks = list(self.by_rank.values())
        self.missing = [rank for rank in range(ranks[0].ranks) if rank not in self.by_rank]
        self.has_graphs = any(each.captured for each in self.ranks)
        self.told = set()  # ranks of which it was said what they do
        self.late_ranks, self.late_texts = {}, {}  # what was found out, by collective

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
        return next((each for each in self.kept_ends(rank, message) if each.number == message.number), None)

    def waits(self):
        """Who waits for whom."""
        said = self.collective_waits()
        said += [self.message_waits(each) for each in self.ranks if each.inside and not each.collective()]
        held = [each for each in self.ranks if each.held and each.rank not in self.told]
        said += [f"{ranks_text(who)} {self.by_rank[who[0]].doings(len(who) > 1)}"
                 for _, who in grouped((each.doings(), each.rank) for each in held)]
        if any(each.inside and not each.is_certain and each.rank not in self.told for each in self.ranks):
            said.append("whether what has not ended has begun is not known")
        return said

    def collective_waits(self):
        said = []
        inside = [each for each in self.ranks if each.collective()]
        for (name, late), who in grouped(((each.collective().name, self.late_for(each)), each.rank) for each in inside):
            first, many = self.by_rank[who[0]], len(who) > 1
            if late:
                said.append(f"{ranks_text(who)} {'wait' if many else 'waits'} in {name} for {late}")
                self.told |= set(who)
            elif len(who) == len(self.ranks):
                said.append(f"all ranks are in {name}" if first.is_certain else f"all ranks have issued {name}, and not ended it")
            else:
                said.append(f"{ranks_text(who)} {first.doings(many)}{self.all_there_text(first)}")
        return said

    def all_there_text(self, rank):
        late = self.late(rank.collective().number)
        return "" if late or self.missing or not rank.is_certain else ", to which all have come"

    def late(self, number):
        """The ranks that have not come to a collective."""
        if number in self.late_ranks:
            return self.late_ranks[number]

        def is_late(rank):
            reached = rank.reached()
            return rank.issued < number and not rank.captured if reached is None else reached < number

        self.late_ranks[number] = [each.rank for each in self.ranks if is_late(each)]
        return self.late_ranks[number]

    def late_for(self, rank):
        """Those for whom a rank waits in its collective, each with what it does instead."""
        collective = rank.collective()
        issued = rank.collectives.get(collective.number)
        if not self.has_graphs and issued and not collective.algorithm:
            collective.algorithm = issued.algorithm
        key = (collective.name, collective.algorithm, rank.rank == collective.root())
        if key not in self.late_texts:
            self.late_texts[key] = self.late_text(rank, collective)
        return self.late_texts[key]

    def late_text(self, rank, collective):
        needed = collective.needed(rank.rank, self.late(collective.number) + self.missing)
        late = [self.by_rank[each] for each in needed if each in self.by_rank]
        self.told |= {each.rank for each in late}
        said = [f"{ranks_text(who)}, which {self.by_rank[who[0]].doings(len(who) > 1)}"
                for _, who in grouped((each.doings(), each.rank) for each in late)]
        missing = [each for each in needed if each not in self.by_rank]
        return ", and ".join(said + ([f"{ranks_text(missing)}, of which there is no dump"] if missing else []))

    def message_waits(self, rank):
        """Which messages of a rank's group wait for their other end."""
        reasons = [(reason, message) for message in rank.inside for reason in [self.reason(rank, message)] if reason]
        if not reasons:
            verb = "is in" if rank.is_certain else "has not ended"
            return f"rank {rank.rank} {verb} {rank.names_text(rank.inside)}"
        self.told.add(rank.rank)
        return f"rank {rank.rank} waits in " + " and in ".join(
            f"{rank.names_text(messages)} {reason}" for reason, messages in grouped(reasons))

    def reason(self, rank, message):
        """Why a message does not end, or is not known to; None if both its ends are there."""
        if message.peer == rank.rank or message.number == 0:
            return None
        peer = self.by_rank.get(message.peer)
        if peer is None:
            return f"for rank {message.peer}, of which there is no dump"
        if peer.captured:
            return f"for rank {peer.rank}, of whose graphs it is not known what they run"
        if rank.captured:  # its messages are counted otherwise
            return f"for rank {peer.rank}, which {peer.doings()}"
        other = self.other_end(rank, message)
        if other is None:
            return self.reason_without_end(rank, message, peer)
        if other.state == "ended" or any(each is other for each in peer.inside):
            return None
        self.told.add(peer.rank)
        if any(each is other for each in peer.held):
            return f"for rank {peer.rank}, which has issued the other end, but it has not begun{peer.behind_text()}"
        but = "and before it" if peer.held else "but"
        doings = peer.doings().removeprefix("has issued ") if peer.held else peer.doings()
        return f"for rank {peer.rank}, which has issued the other end, {but} {doings}"

    def reason_without_end(self, rank, message, peer):
        """The same of a message of which the peer's dump has no other end."""
        others = self.kept_ends(rank, message)
        if any(each.number > message.number for each in others):
            return None  # it was issued so long ago that it is not kept
        if not others and peer.messages_issued > len(peer.messages):
            return f"for rank {peer.rank}, whose dump does not reach back to it"
        self.told.add(peer.rank)
        return f"for rank {peer.rank}, which has not issued the other end: it {peer.doings()}"

    def kept_ends(self, rank, message):
        """The peer's messages among which the other end is, if it is kept."""
        return [each for each in self.by_rank[message.peer].messages
                if each.peer == rank.rank and each.direction != message.direction]

    def ends(self):
        """That all is finished, if it is."""
        finished = [each for each in self.ranks if each.is_idle]
        if not finished or len(finished) != len(self.ranks):
            return []
        counts = grouped((each.count_text(), each.rank) for each in finished)
        text = "; ".join(what if len(counts) == 1 else f"{ranks_text(who)}: {what}" for what, who in counts)
        return [f"all ranks {'that were dumped ' if self.missing else ''}have finished what they issued ({text})"]

    def unknown(self):
        """Of whom it is not known how far they have come, and what can be said all the same."""
        unknown = [each for each in self.ranks if not each.is_known]
        counted = [each for each in unknown if each.begun is not None and each.rank not in self.told]
        said = [f"{ranks_text(who)} {self.by_rank[who[0]].doings(len(who) > 1)}"
                for _, who in grouped((each.doings(), each.rank) for each in counted)]
        uncounted = [each.rank for each in unknown if each.begun is None]
        if not uncounted:
            return said
        said.append(f"how far {ranks_text(uncounted)} {'has' if len(uncounted) == 1 else 'have'} come is not known")
        behind = [each for each in uncounted if self.by_rank[each].is_behind_kept]
        if behind:
            said[-1] += f", as more was issued since than is kept ({ranks_text(behind)})"
        graphs = [each for each in uncounted if self.by_rank[each].captured]
        if graphs:
            said[-1] += f", as launches of graphs are not counted ({ranks_text(graphs)})"
        return said + self.unmatched(uncounted) + self.ahead()

    def unmatched(self, ranks):
        """Of each rank the first message that cannot have ended, as its other end was not issued."""
        said = []
        for rank in ranks if not self.has_graphs else []:
            each = self.by_rank[rank]
            lacking = next((message for message in each.messages if message.is_open() and self.lacks_end(each, message)), None)
            if lacking:
                said.append(f"rank {rank} waits in {lacking.name}, or before it, {self.reason(each, lacking)}")
        return said

    def lacks_end(self, rank, message):
        """Whether the peer has certainly not issued the other end."""
        peer = self.by_rank.get(message.peer)
        if peer is None or peer is rank or message.number == 0:
            return False
        others = self.kept_ends(rank, message)
        reaches_back = others or peer.messages_issued <= len(peer.messages)
        return bool(reaches_back) and all(each.number < message.number for each in others)

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


def complain(text):
    print(f"{pathlib.Path(__file__).name}: {text}", file=sys.stderr)


class Dumps:
    """What was read."""

    def __init__(self):
        self.ranks = []
        self.all_good = True

    def read_all(self, paths, output):
        """Folders stand for what is in them, but for what was merged before."""
        for path in paths:
            if not path.is_dir():
                self.read(path)
                continue
            inside = [each for each in sorted(path.glob("*.json")) if not self.is_merged(each, output)]
            if not inside:
                self.leave_out(path, "there is no dump in this folder (*.json)")
            for each in inside:
                self.read(each)

    @staticmethod
    def is_merged(path, output):
        if output and path.resolve() == pathlib.Path(output).resolve():
            return True
        try:
            with open(path, "rb") as file:
                return file.read(len(MERGED_BEGINS)) == MERGED_BEGINS
        except OSError:
            return False

    def read(self, path):
        try:
            dump = json.loads(path.read_text(encoding="utf-8", errors="replace"))
            self.ranks.append(Rank(dump, path))
        except OSError as error:
            self.leave_out(path, error.strerror)
        except (json.JSONDecodeError, RecursionError) as error:
            self.leave_out(path, f"it is no JSON, or not all of it is there ({error})")
        except (KeyError, TypeError, ValueError, AttributeError):
            self.leave_out(path, "it is no dump of a flight recorder")

    def keep_latest(self):
        """Of dumps of the same rank, as one that was asked several times has left: it may not count as several."""
        latest = {}
        for each in self.ranks:
            other = latest.setdefault((each.communicator, each.rank), each)
            if each.age() > other.age():
                latest[(each.communicator, each.rank)] = each
        for each in self.ranks:
            kept = latest[(each.communicator, each.rank)]
            if each is not kept:
                complain(f"{each.path} is left out: {kept.path} is a later dump of rank {each.rank}")
        self.ranks = list(latest.values())

    def leave_out(self, path, reason):
        complain(f"{path} is left out: {reason}")
        self.all_good = False

    def by_communicator(self):
        communicators, by_stream = {}, {}
        for rank in self.ranks:
            communicators.setdefault(rank.communicator, []).append(rank)
            for each in rank.operations:
                if each.state in ("begun", "issued"):
                    by_stream.setdefault((rank.place, each.stream), []).append((each, rank.communicator))
        for rank in self.ranks:
            rank.find_held_behind(by_stream)
        return communicators

    def write(self, path):
        """False if that fails."""
        events = [event for each in self.ranks for event in each.events]
        try:
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"traceEvents": sorted(events, key=lambda event: event["ts"])}, file)
        except OSError as error:
            complain(f"{path} cannot be written: {error.strerror}")
            return False
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", help="file for the merged trace")
    parser.add_argument("dumps", nargs="+", help="files, or folders of them")
    arguments = parser.parse_args()
    dumps = Dumps()
    dumps.read_all(map(pathlib.Path, arguments.dumps), arguments.output)
    if not dumps.ranks:
        return 2
    dumps.keep_latest()
    communicators = dumps.by_communicator()
    for name, ranks in communicators.items():
        print((f"{name[:8]}: " if len(communicators) > 1 else "") + Job(ranks).sentence())
    is_written = not arguments.output or dumps.write(arguments.output)
    return 0 if dumps.all_good and is_written else 2


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads may stop, as head does
    sys.exit(main())
