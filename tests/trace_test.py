#!/usr/bin/env python3
"""What tools/trace.py says of dumps: who waits for whom and why, and nothing that is not known."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

TOOL = pathlib.Path(sys.argv.pop()) / "tools" / "trace.py"
SPEC = importlib.util.spec_from_file_location("trace_tool", TOOL)
trace = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(trace)


def event(name, state, launch, **about):
    return {"name": name, "ph": "i", "ts": launch, "args": {"state": state, "launch": launch, **about}}


def all_reduce(number, state="ended", launch=None, count=5):
    label = f"number {number} " if number else ""
    name = f"AllReduce {label}(count {count}, type float32, op sum)"
    return event(name, state, number if launch is None else launch, number=number, algorithm="OneShot")


def message(direction, number, peer, state, launch, count=5):
    label = f"number {number} " if number else ""
    name = f"{'Send' if direction == 'send' else 'Recv'} {label}{'to' if direction == 'send' else 'from'} rank {peer} "
    about = {"number": number, "direction": direction, "peer": peer, "bytes": 4 * count}
    return event(name + f"(count {count}, type float32)", state, launch, **about)


def dump(rank, ranks, events, idle=None, **about):
    """Of a GPU, unless `begun` is given."""
    collectives = [each for each in events if "algorithm" in each["args"] and each["args"]["state"] != "captured"]
    messages = [each for each in events if "direction" in each["args"] and each["args"]["state"] != "captured"]
    told = {
        "rank": rank, "ranks": ranks, "communicator": "c" * 16, "failure": "", "issued": len(collectives),
        "messages": len(messages), "captured": sum(each["args"]["state"] == "captured" for each in events),
        "begun": 0, "ended": 0, "progressKnown": "begun" in about, "timesKnown": "begun" in about, "idle": idle,
        "traceEvents": events,
    }
    return {**told, **about}


def in_run(number, count=5):
    """As virtual GPUs tell of a collective that has begun and not ended."""
    return {"name": f"AllReduce number {number} (count {count}, type float32, op sum)", "ph": "B", "ts": number,
            "args": {"number": number, "state": "begun"}}


FIRST = "AllReduce number 1 (count 5, type float32, op sum)"
SECOND = "AllReduce number 2 (count 5, type float32, op sum)"
RECEIVE = "Recv number 1 from rank 1 (count 5, type float32)"
NOT_KNOWN = "whether what has not ended has begun is not known"


class Trace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, dumps):
        for each in dumps:
            name = f"{each['communicator'][0]}{each['rank']}.json"
            (self.folder / name).write_text(json.dumps(each), encoding="utf-8")

    def run_tool(self, *arguments):
        """The status, and what is said and what is complained of."""
        said, complaints = io.StringIO(), io.StringIO()
        sys.argv[1:] = list(map(str, arguments))
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
            status = trace.main()
        return status, said.getvalue(), complaints.getvalue()

    def check(self, dumps, expected):
        self.write(dumps)
        self.assertEqual(self.run_tool(self.folder), (0, expected + "\n", ""))

    def test_all_have_finished(self):
        events = [all_reduce(1), message("send", 1, 0, "ended", 2)]
        self.check([dump(rank, 2, events, idle=True) for rank in range(2)],
                   "All ranks have finished what they issued (1 collective, 1 message).")

    def test_finished_with_different_counts(self):
        self.check([dump(0, 2, [all_reduce(1)], idle=True), dump(1, 2, [], idle=True)],
                   "All ranks have finished what they issued (rank 0: 1 collective; rank 1: 0 collectives).")

    def test_several_ranks_are_late(self):
        late = [dump(rank, 4, [all_reduce(1)], idle=True) for rank in (1, 3)]
        waiting = [dump(rank, 4, [all_reduce(1), all_reduce(2, "issued")], idle=False) for rank in (0, 2)]
        self.check(late + waiting, f"Ranks 0, 2 wait in {SECOND} for ranks 1, 3, which have finished what they issued, "
                                   f"at last {FIRST}.")

    def test_late_ranks_have_not_issued_anything(self):
        self.check([dump(0, 2, [all_reduce(1, "issued")], idle=False), dump(1, 2, [], idle=True)],
                   f"Rank 0 waits in {FIRST} for rank 1, which has issued nothing.")

    def test_a_gpu_is_in_the_first_that_has_not_ended(self):
        events = [all_reduce(1), all_reduce(2, "issued"), all_reduce(3, "issued")]
        self.check([dump(0, 2, events, idle=False), dump(1, 2, events[:1], idle=True)],
                   f"Rank 0 waits in {SECOND} for rank 1, which has finished what it issued, at last {FIRST}.")

    def test_the_first_that_has_not_ended_may_not_be_kept(self):
        behind = [all_reduce(number, "issued") for number in range(145, 401)]
        late = [*[all_reduce(number) for number in range(1, 10)], *[all_reduce(number, "issued") for number in range(10, 61)]]
        tenth = all_reduce(10)["name"]
        for through in ({}, {"launchesThrough": 9}):
            with self.subTest(through):
                self.check([dump(0, 2, behind, idle=False, issued=400, **through), dump(1, 2, late, idle=False, **through)],
                           f"Rank 1 has not ended {tenth}; {NOT_KNOWN}; how far rank 0 has come is not known, as more was "
                           "issued since than is kept (rank 0); collective number 61 was issued by rank 0 and not by rank 1.")
        kept = [all_reduce(number, "issued") for number in range(10, 266)]
        self.check([dump(0, 2, kept, idle=False, issued=265, launchesThrough=9), dump(1, 2, [], idle=True)],
                   f"Rank 0 waits in {tenth} for rank 1, which has issued nothing.")

    def test_all_are_in_the_same_call(self):
        events = [all_reduce(1), all_reduce(2, "issued")]
        self.check([dump(rank, 2, events, idle=False) for rank in range(2)],
                   f"All ranks have issued {SECOND}, and not ended it; {NOT_KNOWN}.")
        self.check([dump(rank, 2, [all_reduce(1), all_reduce(2, "begun")], idle=False) for rank in range(2)],
                   f"All ranks are in {SECOND}.")

    def test_dumps_are_missing(self):
        self.check([dump(0, 4, [all_reduce(1, "issued")], idle=False), dump(2, 4, [], idle=True)],
                   f"Rank 0 waits in {FIRST} for rank 2, which has issued nothing, and ranks 1, 3, of which there is no "
                   "dump.")

    def test_dumps_are_missing_and_the_others_have_finished(self):
        self.check([dump(0, 2, [all_reduce(1)], idle=True)],
                   "All ranks that were dumped have finished what they issued (1 collective); there is no dump of rank 1.")

    def test_last_calls_differ(self):
        self.check([dump(rank, 3, [all_reduce(1), all_reduce(2, "begun", count=5 + (rank == 1)), in_run(2, 5 + (rank == 1))],
                         idle=False, begun=2, ended=1) for rank in range(3)],
                   f"The calls do not match: ranks 0, 2 call {SECOND}; rank 1 calls {SECOND.replace('count 5', 'count 6')}.")

    def test_calls_differ_though_progress_is_unknown(self):
        self.check([dump(rank, 2, [all_reduce(1, "unknown", count=5 + rank)]) for rank in range(2)],
                   f"The calls do not match: rank 0 calls {FIRST}; rank 1 calls {FIRST.replace('count 5', 'count 6')}.")

    def test_progress_is_unknown(self):
        dumps = [dump(0, 2, [all_reduce(number, "unknown") for number in range(1, 6)]),
                 dump(1, 2, [all_reduce(number, "unknown") for number in range(1, 4)])]
        self.check(dumps, "How far ranks 0, 1 have come is not known; AllReduce number 4 (count 5, type float32, op sum) was "
                          "issued by rank 0 and not by rank 1.")

    def test_dumps_of_an_older_version_claim_nothing(self):
        old = dump(0, 1, [all_reduce(1, "issued")])
        for key in ("idle", "timesKnown", "captured", "messages"):
            del old[key]
        self.check([old], "How far rank 0 has come is not known.")

    def test_progress_of_one_is_unknown(self):
        self.check([dump(0, 2, [all_reduce(1, "issued")], idle=False), dump(1, 2, [])],
                   f"Rank 0 waits in {FIRST} for rank 1, which has issued 0 collectives, and no more is known; "
                   f"how far rank 1 has come is not known; {FIRST} was issued by rank 0 and not by rank 1.")

    def test_calls_in_graphs(self):
        events = [all_reduce(1), all_reduce(0, "captured", 0)]
        self.check([dump(0, 2, events, idle=False), dump(1, 2, events, idle=True)],
                   "How far rank 0 has come is not known, as launches of graphs are not counted (rank 0).")
        self.check([dump(rank, 2, events, idle=True) for rank in range(2)],
                   "All ranks have finished what they issued (1 collective, 1 in graphs).")

    def test_graphs_of_virtual_gpus(self):
        events = [all_reduce(0, "captured", 0)]
        self.check([dump(0, 2, events + [in_run(7)], idle=False, begun=7, ended=6),
                    dump(1, 2, events, idle=True, begun=6, ended=6)],
                   "Rank 0 waits in AllReduce number 7 (count 5, type float32, op sum) for rank 1, which has finished what it "
                   "issued, at last collective number 6.")

    def test_a_receive_without_its_send(self):
        self.check([dump(0, 2, [all_reduce(1), message("receive", 1, 1, "issued", 2)], idle=False),
                    dump(1, 2, [all_reduce(1)], idle=True)],
                   "Rank 0 waits in Recv number 1 from rank 1 (count 5, type float32) for rank 1, which has not issued the "
                   f"other end: it has finished what it issued, at last {FIRST}.")

    def test_a_receive_of_a_rank_without_dump(self):
        self.check([dump(0, 2, [message("receive", 1, 1, "issued", 1)], idle=False)],
                   "Rank 0 waits in Recv number 1 from rank 1 (count 5, type float32) for rank 1, of which there is no "
                   "dump.")

    def test_a_send_behind_a_collective(self):
        self.check([dump(0, 2, [message("receive", 1, 1, "issued", 1), all_reduce(1, "issued", 2)], idle=False),
                    dump(1, 2, [all_reduce(1, "issued", 1), message("send", 1, 0, "issued", 2)], idle=False)],
                   f"Rank 1 waits in {FIRST} for rank 0, which has not ended Recv number 1 from rank 1 (count 5, type float32); "
                   "rank 0 waits in Recv number 1 from rank 1 (count 5, type float32) for rank 1, which has issued the other end, "
                   f"but has not ended {FIRST}.")

    def test_both_ends_are_there(self):
        self.check([dump(0, 2, [message("receive", 1, 1, "issued", 1)], idle=False),
                    dump(1, 2, [message("send", 1, 0, "issued", 1)], idle=False)],
                   "Rank 0 has not ended Recv number 1 from rank 1 (count 5, type float32); rank 1 has not ended Send number 1 to "
                   f"rank 0 (count 5, type float32); {NOT_KNOWN}.")
        self.check([dump(0, 2, [message("receive", 1, 1, "begun", 1)], idle=False),
                    dump(1, 2, [message("send", 1, 0, "begun", 1)], idle=False)],
                   "Rank 0 is in Recv number 1 from rank 1 (count 5, type float32); rank 1 is in Send number 1 to rank 0 (count "
                   "5, type float32).")

    def test_ends_differ(self):
        self.check([dump(0, 2, [message("receive", 1, 1, "issued", 1)], idle=False),
                    dump(1, 2, [message("send", 1, 0, "issued", 1, count=6)], idle=False)],
                   "The calls do not match: rank 0 calls Recv number 1 from rank 1 (count 5, type float32); rank 1 calls Send "
                   "number 1 to rank 0 (count 6, type float32).")

    def test_messages_of_a_group(self):
        group = [message("receive", 1, peer, "issued", 1) for peer in range(1, 6)]
        answers = [dump(1, 6, [message("send", 1, 0, "ended", 1)], idle=True)]
        others = [dump(peer, 6, [], idle=True) for peer in range(2, 6)]
        names = [f"Recv number 1 from rank {peer} (count 5, type float32) for rank {peer}, which has not issued the other end: "
                 "it has issued nothing" for peer in range(2, 6)]
        self.check([dump(0, 6, group, idle=False)] + answers + others, "Rank 0 waits in " + " and in ".join(names) + ".")

    def test_a_send_that_the_dump_does_not_reach_back_to(self):
        peer = dump(1, 2, [all_reduce(1, "ended")], idle=True, messages=700)
        self.check([dump(0, 2, [message("receive", 1, 1, "issued", 1)], idle=False), peer],
                   "Rank 0 waits in Recv number 1 from rank 1 (count 5, type float32) for rank 1, whose dump does not reach back "
                   "to it.")

    def test_a_message_of_a_rank_with_graphs(self):
        peer = dump(1, 2, [message("send", 0, 0, "captured", 0)], idle=True)
        self.check([dump(0, 2, [message("receive", 1, 1, "issued", 1)], idle=False), peer],
                   "Rank 0 waits in Recv number 1 from rank 1 (count 5, type float32) for rank 1, of whose graphs it is not known "
                   "what they run.")

    def test_the_failure_is_told(self):
        self.check([dump(0, 1, [all_reduce(1, "unknown")], failure="rank 0: it is late.")],
                   "How far rank 0 has come is not known; first failure: rank 0: it is late.")

    def test_a_rank_that_has_issued_and_not_begun_has_not_come(self):
        waiting = dump(0, 2, [all_reduce(1, "begun"), in_run(1)], idle=False, begun=1)
        held = dump(1, 2, [all_reduce(1, "issued")], idle=False, begun=0)
        self.check([waiting, held],
                   f"Rank 0 waits in {FIRST} for rank 1, which has issued {FIRST}, but it has not begun.")
        self.check([held, {**held, "rank": 0}], f"Ranks 0, 1 have issued {FIRST}, but it has not begun.")

    def test_a_gpu_whose_begins_are_known_and_that_has_not_begun_has_not_come(self):
        self.check([dump(0, 2, [all_reduce(1), all_reduce(2, "begun")], idle=False, beginsKnown=True),
                    dump(1, 2, [all_reduce(1), all_reduce(2, "issued")], idle=False, beginsKnown=True)],
                   f"Rank 0 waits in {SECOND} for rank 1, which has issued {SECOND}, but it has not begun.")

    def test_a_message_whose_other_end_has_not_begun(self):
        receiver = dump(0, 2, [message("receive", 1, 1, "begun", 1)], idle=False, beginsKnown=True)
        sender = dump(1, 2, [message("send", 1, 0, "issued", 1)], idle=False, beginsKnown=True)
        self.check([receiver, sender],
                   f"Rank 0 waits in {RECEIVE} for rank 1, which has issued the other end, but it has not begun.")
        sender = dump(1, 2, [all_reduce(1, "issued", 1), message("send", 1, 0, "issued", 2)], idle=False, beginsKnown=True)
        self.check([receiver, sender], f"Rank 0 waits in {RECEIVE} for rank 1, which has issued the other end, and before it "
                                       f"{FIRST}, but it has not begun.")

    def test_what_stands_before_it_in_its_stream_is_told(self):
        other = message("receive", 1, 0, "begun", 1)
        other["args"]["stream"] = "0x77"
        held = all_reduce(1, "issued", 2)
        held["args"]["stream"] = "0x77"
        place = {"host": "h", "pid": 5, "device": 1}
        self.write([dump(1, 2, [other], idle=False, beginsKnown=True, communicator="d" * 16, **place),
                    dump(0, 2, [all_reduce(1, "begun"), in_run(1)], idle=False, begun=1),
                    dump(1, 2, [held], idle=False, begun=0, **place)])
        status, said, _ = self.run_tool(self.folder)
        self.assertEqual(status, 0)
        self.assertIn(f"cccccccc: Rank 0 waits in {FIRST} for rank 1, which has issued {FIRST}, but it has not begun: before "
                      "it in its stream is Recv number 1 from rank 0 (count 5, type float32) of communicator dddddddd.\n", said)

    def test_a_graph_that_was_launched_once_has_run(self):
        events = [all_reduce(0, "captured", 0)]
        run = {**in_run(1), "ph": "X", "args": {"number": 1, "state": "ended"}}
        self.check([dump(0, 2, events + [run, in_run(2)], idle=False, begun=2, ended=1),
                    dump(1, 2, events + [run], idle=True, begun=1, ended=1)],
                   f"Rank 0 waits in {SECOND} for rank 1, which has finished what it issued, at last {FIRST}.")
        self.check([dump(0, 2, events + [run, in_run(2)], idle=False, begun=2, ended=1),
                    dump(1, 2, events + [run], idle=False, begun=1, ended=1)],
                   f"Rank 0 waits in {SECOND} for rank 1, which has ended {FIRST}, and no more is known.")

    def test_calls_and_graphs_in_turn(self):
        events = [all_reduce(1), all_reduce(0, "captured", 0)]
        runs = [{**in_run(number), "ph": "X", "args": {"number": number, "state": "ended"}} for number in (1, 2, 3)]
        last = "AllReduce number 3 (count 5, type float32, op sum)"
        self.check([dump(0, 2, events + runs + [in_run(4)], idle=False, begun=4, ended=3),
                    dump(1, 2, events + runs, idle=True, begun=3, ended=3)],
                   "Rank 0 waits in AllReduce number 4 (count 5, type float32, op sum) for rank 1, which has finished what it "
                   f"issued, at last {last}.")

    def test_a_gpu_may_have_run_graphs(self):
        self.check([dump(0, 2, [all_reduce(1), all_reduce(2, "issued")], idle=False),
                    dump(1, 2, [all_reduce(1), all_reduce(0, "captured", 0)], idle=True)],
                   f"Rank 0 waits in {SECOND} for rank 1, which has finished what it issued (1 collective, 1 in graphs).")

    def rooted(self, what, algorithm, rank):
        """The sentence when one of four ranks is in a collective of root 0, and nobody else has come."""
        name = f"{what} number 1 (count 5, type float32, root 0)"
        inside = event(name, "begun", 1, number=1, algorithm=algorithm)
        self.write([dump(each, 4, [inside] if each == rank else [], idle=each != rank) for each in range(4)])
        return self.run_tool(self.folder)[1].removeprefix(f"Rank {rank} waits in {name} for ")

    def test_who_waits_for_the_root_alone(self):
        everybody = "ranks 1-3, which have issued nothing.\n"
        root = "rank 0, which has issued nothing.\n"
        for what in ("Broadcast", "Scatter"):
            for algorithm in ("OneShot", "Ring"):
                self.assertEqual(self.rooted(what, algorithm, 2), root)
        for what in ("Reduce", "Gather"):
            self.assertEqual(self.rooted(what, "OneShot", 0), everybody)
            self.assertEqual(self.rooted(what, "OneShot", 2), root)
        self.assertEqual(self.rooted("Reduce", "Ring", 2), "ranks 0, 1, 3, which have issued nothing.\n")

    def test_nobody_waits_for_ranks_that_are_not_needed(self):
        name = "Gather number 1 (count 5, type float32, root 0)"
        inside = event(name, "begun", 1, number=1, algorithm="OneShot")
        self.check([dump(rank, 3, [inside] if rank < 2 else [], idle=rank == 2) for rank in range(3)],
                   f"Rank 0 waits in {name} for rank 2, which has issued nothing; rank 1 is in {name}.")

    def test_more_is_issued_than_is_kept(self):
        kept = [message("receive", number, 1, "issued", number) for number in range(45, 301)]
        awaited = [{"name": RECEIVE, "number": 1, "direction": "receive", "peer": 1}]
        late = dump(1, 2, [], idle=True)
        self.check([dump(0, 2, kept, idle=False, beginsKnown=True, messages=300, awaited=awaited), late],
                   f"Rank 0 waits in {RECEIVE} for rank 1, which has not issued the other end: it has issued nothing.")
        kept = [message("receive", number, 1, "unknown", number) for number in range(45, 301)]
        self.check([dump(0, 2, kept, idle=False, messages=300), late],
                   "How far rank 0 has come is not known; rank 0 waits in Recv number 45 from rank 1 (count 5, type float32), or "
                   "before it, for rank 1, which has not issued the other end: it has issued nothing.")

    def test_what_was_merged_is_no_dump(self):
        self.write([dump(0, 1, [all_reduce(1)], idle=True)])
        for name in ("merged.json", "merged.json", "again.json"):
            self.assertEqual(self.run_tool("-o", self.folder / name, self.folder),
                             (0, "All ranks have finished what they issued (1 collective).\n", ""))
        self.assertEqual(self.run_tool(self.folder / "merged.json"),
                         (2, "", f"trace.py: {self.folder}/merged.json is left out: it is no dump of a flight recorder\n"))

    def test_files_that_are_no_dumps_are_left_out(self):
        self.write([dump(0, 2, [all_reduce(1)], idle=True)])
        good = (self.folder / "c0.json").read_text(encoding="utf-8")
        reason = "is left out: it is no dump of a flight recorder\n"
        for text, expected in ((good[:100], "is left out: it is no JSON, or not all of it is there ("), ("", "it is no JSON"),
                               ("[" * 100_000, "it is no JSON"), ("[]", reason), ("null", reason), ('{"rank": 1}', reason),
                               (good.replace('"traceEvents": [', '"traceEvents": [1, '), reason)):
            broken = self.folder / "broken.json"
            broken.write_text(text, encoding="utf-8")
            status, said, complaints = self.run_tool(self.folder)
            self.assertEqual((status, said), (2, "All ranks that were dumped have finished what they issued (1 collective); "
                                                 "there is no dump of rank 1.\n"))
            self.assertIn(f"trace.py: {broken} ", complaints)
            self.assertIn(expected, complaints)
            self.assertEqual(self.run_tool(broken), (2, "", complaints))
            self.assertEqual(complaints.count("\n"), 1)

    def test_dumps_with_values_of_other_kinds_are_left_out(self):
        events = [all_reduce(1), message("send", 1, 0, "issued", 2)]
        self.write([dump(1, 2, events, idle=False)])
        broken = self.folder / "c0.json"
        wrong = [{"rank": "0"}, {"rank": 2}, {"ranks": 10**9}, {"communicator": ["c"]}, {"host": {}}, {"issued": "1"},
                 {"failure": 1}, {"begun": None, "timesKnown": True}, {"traceEvents": {}},
                 {"traceEvents": [{"ph": "M"}]}, {"traceEvents": [{**events[0], "name": 1}]},
                 {"traceEvents": [{**events[0], "ts": "1"}]}]
        for each in wrong + [{"traceEvents": [{**events[1], "args": {**events[1]["args"], name: []}}]}
                             for name in ("number", "state", "launch", "direction", "peer", "algorithm", "stream")]:
            with self.subTest(each):
                broken.write_text(json.dumps({**dump(0, 2, events, idle=False), **each}), encoding="utf-8")
                status, said, complaints = self.run_tool(self.folder)
                self.assertEqual((status, complaints.count("\n")), (2, 1))
                self.assertIn("rank 0, of which there is no dump", said)
                self.assertIn("it is no dump of a flight recorder", complaints)

    def test_of_several_dumps_of_a_rank_the_latest_counts(self):
        first = [dump(rank, 2, [all_reduce(1)], idle=True) for rank in range(2)]
        self.write(first)
        for each in first:  # earlier, though their names are the last
            (self.folder / f"c{each['rank']}.json").rename(self.folder / f"old{each['rank']}.json")
        self.write([dump(0, 2, [all_reduce(1), all_reduce(2)], idle=True),
                    dump(1, 2, [all_reduce(1), all_reduce(2)], idle=True)])
        merged = self.folder / "merged"
        status, said, complaints = self.run_tool("-o", merged, self.folder)
        self.assertEqual((status, said), (0, "All ranks have finished what they issued (2 collectives).\n"))
        self.assertEqual(complaints.count("is a later dump of rank"), 2)
        self.assertEqual(len(json.loads(merged.read_text(encoding="utf-8"))["traceEvents"]), 4)

    def test_it_can_be_run_as_it_is(self):
        self.assertTrue(os.access(TOOL, os.X_OK))

    def test_files_that_are_missing_or_cannot_be_written(self):
        self.assertEqual(self.run_tool(self.folder / "none"),
                         (2, "", f"trace.py: {self.folder}/none is left out: No such file or directory\n"))
        self.assertEqual(self.run_tool(self.folder),
                         (2, "", f"trace.py: {self.folder} is left out: there is no dump in this folder (*.json)\n"))
        self.write([dump(0, 1, [], idle=True)])
        self.assertEqual(self.run_tool("-o", self.folder / "none" / "at", self.folder)[::2],
                         (2, f"trace.py: {self.folder}/none/at cannot be written: No such file or directory\n"))

    def test_names_may_hold_any_bytes(self):
        text = json.dumps(dump(0, 1, [], idle=True, host="HOST"))
        (self.folder / "0.json").write_bytes(text.encode().replace(b"HOST", b"h\xff\xc3\xa4"))
        self.assertEqual(self.run_tool(self.folder)[0], 0)


if __name__ == "__main__":
    unittest.main()
