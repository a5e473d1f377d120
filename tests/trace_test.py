#!/usr/bin/env python3
"""What tools/trace.py says of dumps: who waits for whom and why, and nothing that is not known."""
import contextlib
import importlib.util
import io
import json
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


class Trace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, dumps, expected):
        for each in dumps:
            (self.folder / f"{each['rank']}.json").write_text(json.dumps(each), encoding="utf-8")
        said = io.StringIO()
        sys.argv[1:] = [str(self.folder)]
        with contextlib.redirect_stdout(said):
            self.assertEqual(trace.main(), 0)
        self.assertEqual(said.getvalue(), expected + "\n")

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

    def test_all_are_in_the_same_call(self):
        events = [all_reduce(1), all_reduce(2, "issued")]
        self.check([dump(rank, 2, events, idle=False) for rank in range(2)], f"All ranks are in {SECOND}.")

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
                   "Rank 0 waits in AllReduce number 7 (count 5, type float32, op sum) for rank 1, which has issued nothing.")

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
                   f"Rank 1 waits in {FIRST} for rank 0, which is in Recv number 1 from rank 1 (count 5, type float32); rank 0 "
                   "waits in Recv number 1 from rank 1 (count 5, type float32) for rank 1, which has issued the other end, but "
                   f"is in {FIRST}.")

    def test_both_ends_are_there(self):
        self.check([dump(0, 2, [message("receive", 1, 1, "issued", 1)], idle=False),
                    dump(1, 2, [message("send", 1, 0, "issued", 1)], idle=False)],
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


if __name__ == "__main__":
    unittest.main()
