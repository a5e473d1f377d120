#!/usr/bin/env python3
"""Prints the tests that failed in the last run of presets, each with the end of its output: `failed_tests.py PRESET...`.

For the end of a long log, of which often nothing else is kept. A preset whose tests did not run is passed over.
"""
import pathlib
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS_WITH_OUTPUT = 8
LINES = 30
COLUMNS = 400


def failed(preset):
    """Name and output of each failed test of a preset's last run."""
    report = ROOT / "build" / preset / "tests.xml"
    if not report.is_file():
        return []
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    return [(case.get("name"), case.findtext("system-out") or "") for case in cases if case.get("status") == "fail"]


def main():
    failures = [(preset, name, output) for preset in sys.argv[1:] for name, output in failed(preset)]
    for number, (preset, name, output) in enumerate(failures):
        print(f"==== failed in {preset}: {name}")
        if number < TESTS_WITH_OUTPUT:
            for line in output.splitlines()[-LINES:]:
                print(f"  {line[:COLUMNS]}")


if __name__ == "__main__":
    main()
