#!/usr/bin/env python3
"""What scripts/lint.py says of sources that clang-tidy looks at together: the same as of each by itself. `tidy_test.py ROOT`"""
import argparse
import contextlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop())
sys.path.insert(0, str(ROOT / "scripts"))
import lint  # noqa: E402
import tidy_groups  # noqa: E402

PLAIN = """namespace nitinol {{
namespace {{

int {0}_of(int value) {{ return value + 1; }}

}}  // namespace

int {0}(int value) {{ return {0}_of(value); }}

}}  // namespace nitinol
"""
# A source with one mistake for each kind of check: of names, of syntax, of the whole text, of macros and includes, of the compiler.
MISTAKES = {
    "readability-identifier-naming": "namespace {\n\nint BadName(int value) { return value; }\n\n}  // namespace\n\n"
    "int good_name() { return BadName(1); }\n",
    "modernize-use-using": "typedef int Number;\n",
    "modernize-use-override": "struct Base {\n  virtual void act();\n};\n\nstruct Derived : Base {\n  virtual void act();\n};\n",
    "misc-unused-using-decls": "namespace given {\nint thing();\n}  // namespace given\n\nusing given::thing;\n",
    "misc-unused-alias-decls": "namespace given {\nint thing();\n}  // namespace given\n\nnamespace other = given;\n",
    "readability-duplicate-include": '#include "given.h"\n#include "given.h"\n',
    "bugprone-macro-parentheses": "#define TWICE(x) 2 * x\n",
    "clang-diagnostic-unused-const-variable": "namespace {\n\nconst int kUnused = 3;\n\n}  // namespace\n",
    "clang-diagnostic-unused-function": "namespace {\n\ninline int unused() { return 3; }\n\n}  // namespace\n",
}
# A source that has what those with mistakes lack.
NEEDS_ALL = '#include "given.h"\n\nnamespace given {\nint thing();\n}  // namespace given\n\nint needed() { return given::thing(); }\n'


def clang_tidy():
    try:
        return lint.tool("clang-tidy")
    except SystemExit as missing:
        raise unittest.SkipTest(str(missing)) from None


class TidyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve() / "repository"
        self.build = self.root / "build"
        self.build.mkdir(parents=True)
        shutil.copy(ROOT / ".clang-tidy", self.root)
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.commands = {}
        for name, value in (("ROOT", self.root), ("CACHE", self.root.parent / "stamps")):
            self.addCleanup(setattr, lint, name, getattr(lint, name))
            setattr(lint, name, value)

    def write(self, name, text, command="c++ -Wall -Wextra -Werror -std=c++20"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.suffix == ".cc":
            self.commands[path] = f"{command} -o {path.stem}.o -c {path}"
        return path

    def sources(self):
        return [
            tidy_groups.Source(path, {tidy_groups.shared_command({"command": command, "file": str(path)})},
                               tidy_groups.namespaces(path.read_text()))
            for path, command in self.commands.items()
        ]

    def groups(self, most=16):
        return [[source.path.name for source in group] for group in tidy_groups.groups(self.sources(), most)]

    def tidy(self):
        """What is printed and the complaint with which it ends; None for none."""
        clang_tidy()
        entries = [{"directory": str(self.build), "file": str(path), "command": command} for path, command in self.commands.items()]
        (self.build / "compile_commands.json").write_text(json.dumps(entries))
        said = io.StringIO()
        complaint = None
        with contextlib.redirect_stdout(said):
            try:
                lint.check_tidy(argparse.Namespace(build=self.build, jobs=1, files=[]))
            except SystemExit as end:
                complaint = end.code
        return said.getvalue(), complaint

    def test_sources_go_together_that_share_their_command_and_no_name(self):
        for name in ("a", "b", "c"):
            self.write(f"{name}.cc", PLAIN.format(name))
        self.write("d.cc", PLAIN.format("d"), "c++ -std=c++17")
        self.assertEqual(self.groups(), [["a.cc", "b.cc", "c.cc"], ["d.cc"]])
        self.assertEqual(self.groups(2), [["a.cc", "b.cc"], ["c.cc"], ["d.cc"]])

    def test_names_that_sources_keep_to_themselves_do_not_meet(self):
        self.write("a.cc", PLAIN.format("a").replace("a_of", "value_of"))
        self.write("b.cc", PLAIN.format("b").replace("b_of", "value_of"))
        self.write("c.cc", "int value_of(int);  // not value_of\n\nint c() { return value_of(1); }\n")
        self.assertEqual(self.groups(), [["a.cc", "b.cc", "c.cc"]])
        self.assertRegex(self.tidy()[0], r"^tidy: \[3/3\] a.cc and 2 more .* s\ntidy: 3 files pass, 3 of them looked at now\n$")
        text = tidy_groups.joined(self.sources())
        self.assertIn("int value_of0(int value)", text)
        self.assertIn("return value_of1(value);", text)
        self.assertIn("int value_of(int);  // not value_of\n", text)

    def test_sources_stay_apart_where_one_would_change_what_the_other_means(self):
        first = PLAIN.format("first")
        for what, second in {
            "a name for others": "int first(int);\n",
            "a name that is a member's, too": "static int first_of(int value) { return given.first_of; }\n",
            "a macro": "#define SECOND 2\n",
            "a using-declaration that is not needed": "#include <string>\n\nusing std::string;  // no string\n",
            "a field that nobody uses": "class Second {\n  int field_ = 0;\n};\n",
            "a namespace of another's name": "int second() { return nitinol::value; }\n",
        }.items():
            with self.subTest(what):
                self.commands.clear()
                self.write("first.cc", first)
                self.write("second.cc", second)
                self.assertEqual(self.groups(), [["first.cc"], ["second.cc"]])

    def test_what_passed_together_is_not_looked_at_again(self):
        for name in ("a", "b", "c"):
            self.write(f"{name}.cc", PLAIN.format(name))
        said, complaint = self.tidy()
        self.assertEqual(complaint, None)
        self.assertRegex(said, r"^tidy: \[3/3\] a.cc and 2 more .* s\ntidy: 3 files pass, 3 of them looked at now\n$")
        self.write("b.cc", PLAIN.format("b") + "\n")
        self.assertRegex(self.tidy()[0], r"^tidy: \[1/1\] b.cc .* s\ntidy: 3 files pass, 1 of them looked at now\n$")

    def test_each_kind_of_mistake_is_found_in_a_group(self):
        tidy = clang_tidy()
        self.write("given.h", "#pragma once\n")
        for check, text in MISTAKES.items():
            with self.subTest(check):
                self.write("bad.cc", text)
                self.write("good.cc", NEEDS_ALL)
                passed, output, _ = lint.run_tidy(tidy, self.build, self.sources())
                self.assertFalse(passed)
                self.assertIn(f"[{check}", output)
                self.assertEqual(output.count(": error: "), 1, output)

    def test_a_mistake_is_told_of_its_source_alone(self):
        self.write("a.cc", PLAIN.format("a"))
        self.write("b.cc", PLAIN.format("BadName"))
        self.write("c.cc", PLAIN.format("c"))
        said, complaint = self.tidy()
        self.assertEqual(complaint, "lint: clang-tidy has complaints about b.cc")
        self.assertIn(f"{self.root}/b.cc:8:5: error: invalid case style for function 'BadName'", said)
        self.assertEqual(len(list(lint.CACHE.iterdir())), 2)  # of the others

    def test_a_mistake_in_a_header_is_told(self):
        self.write("src/base/bad.h", "#pragma once\nint BadName();\n")
        for name in ("a", "b"):
            self.write(f"src/base/{name}.cc", '#include "bad.h"\n\n' + PLAIN.format(name))
        said, complaint = self.tidy()
        self.assertEqual(complaint, "lint: clang-tidy has complaints about src/base/a.cc, src/base/b.cc")
        self.assertEqual(said.count(f"{self.root}/src/base/bad.h:2:5: error: invalid case style for function 'BadName'"), 2)

    def test_sources_that_do_not_go_together_after_all_are_looked_at_one_by_one(self):
        for name in ("a", "b", "c"):
            self.write(f"{name}.cc", PLAIN.format(name))
        for name in ("d", "e"):  # not laid out as it should be, so that their names are not seen
            self.write(f"{name}.cc", f"namespace {{\n  int hidden(int x) {{ return x; }}\n}}\nint {name}() {{ return hidden(1); }}\n")
        self.assertEqual(self.groups(), [["a.cc", "b.cc", "c.cc", "d.cc", "e.cc"]])
        said, complaint = self.tidy()
        self.assertEqual(complaint, None)
        self.assertRegex(said, r"^tidy: a.cc and 4 more do not pass together")
        self.assertIn("tidy: 5 files pass, 5 of them looked at now", said)


if __name__ == "__main__":
    unittest.main()
