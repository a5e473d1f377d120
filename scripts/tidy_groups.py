"""Writes several sources as one text for clang-tidy. Nearly all of its time goes into the headers of the system, again for each source;
sixteen sources, one behind the other in one text, take about three times as long as one.

Sources go together if their compile commands are the same and no name would mean something else to one that stands behind another. A name
that a source keeps to itself gets the source's number where another has the word, too. What is read here is text, laid out as clang-format
does it, so what goes together is a guess: a group that fails proves nothing, and lint.py looks at its halves, down to single sources. Of a
group that passes each source would pass by itself, but for what others make good:
 - what it does not include or declare (compiling finds that), or declares elsewhere (misc-new-delete-overloads,
   bugprone-forward-declaration-namespace);
 - a `using a::name;` for which it has no use though it has the word `name`, if another does use that;
 - a private field of a class in a header that nobody uses, if a comparison by `= default` follows: with that clang forgets all before it.
"""
import re

# Stands for the source in a command that several share.
SOURCE = "<source>"

# Comments, strings, and lines for the preprocessor.
NOT_CODE = re.compile(r'^[ \t]*#[^\n]*|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL | re.MULTILINE)
# A word that nothing qualifies, neither a namespace nor an object.
WORD = re.compile(r"(?<![\w.:>])[A-Za-z_]\w*")
# A word of the code; what is no code is found as a whole, so that no word is found in it.
CODE_WORD = re.compile(NOT_CODE.pattern + r"|\b[A-Za-z_]\w*", NOT_CODE.flags)
QUALIFIER = re.compile(r"(?<![\w:])(\w+)::")
QUALIFIED = re.compile(r"(?:\.|->|::)(\w+)")
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)
ANONYMOUS = re.compile(r"^namespace \{\n(.*?)(?:^\}  // namespace$|\Z)", re.DOTALL | re.MULTILINE)
# What is in a namespace is not indented: only what that declares begins at the margin.
AT_MARGIN = re.compile(r"^(?!using\b|namespace\b|static_assert\b)[A-Za-z_].*", re.MULTILINE)
ALIAS = re.compile(r"^(?:using|namespace) (\w+) =", re.MULTILINE)
USED_NAME = re.compile(r"^using [\w:]*::(\w+);", re.MULTILINE)
MEMBER = re.compile(r"[\w>&*] (?<!return )(\w+_)(?: =|[;{])")
MACRO = re.compile(r"^[ \t]*#[ \t]*define\b", re.MULTILINE)
TEST = re.compile(r"(?:TEST|INSTANTIATE)\w*\((\w+), (\w+)")
TYPE = re.compile(r"(?:class|struct|union|enum(?: class)?) (\w+)(?: final)?(?: [:{]|;)")
DECLARED = re.compile(r"(::)?\b(\w+)(?:\(|\[|\{|;| =| \{)")
KEYWORDS = set("alignas auto bool char const decltype double extern float int long noexcept operator short sizeof unsigned void".split())
# What no header declares although no anonymous namespace holds it. (`extern "C"` is left for what another program calls.)
INTERNAL = re.compile(r"^(?:static|const|constexpr|extern)\b.*", re.MULTILINE)
INCLUDE_BESIDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)"([^"]+)"', re.MULTILINE)


def declared(line):
    """The name that a line at the margin declares; None where it defines a member of a class."""
    found = TEST.match(line) or TYPE.match(line)
    if found:
        return "_".join(found.groups())
    for qualifier, name in DECLARED.findall(line):
        if name not in KEYWORDS:
            return None if qualifier else name
    return None


def names(code):
    """What is declared at the margin of `code`."""
    return {declared(line) for line in AT_MARGIN.findall(code)} - {None} | set(ALIAS.findall(code))


def namespaces(text):
    """The names of the namespaces that a file opens."""
    return {name for opened in NAMESPACE.findall(text) for name in opened.split("::")}


class Source:
    """A source and what decides with which others it goes."""

    def __init__(self, path, commands, namespaces):
        """`namespaces` are those of this repository that it sees."""
        text = path.read_text(encoding="utf-8")
        code = NOT_CODE.sub(" ", text)
        self.path = path
        self.commands = commands
        self.namespaces = namespaces
        self.words = set(WORD.findall(code))
        self.qualifiers = set(QUALIFIER.findall(code))
        self.declared = names(code)
        hidden = "".join(NOT_CODE.sub(" ", part) for part in ANONYMOUS.findall(text))
        self.own = names(hidden) | names("\n".join(INTERNAL.findall(code))) | set(ALIAS.findall(code))
        # A name that is qualified somewhere may be that of something else there.
        self.renamable = (self.own & self.words).difference(QUALIFIED.findall(code))
        self.alone = len(commands) > 1 or bool(MACRO.search(text)) or self.may_have_unused(code)

    def may_have_unused(self, code):
        """Whether nothing may use a using-declaration or a member, which other sources would hide."""
        unused = (member for member in MEMBER.findall(code) if len(re.findall(rf"\b{member}\b", code)) == 1)
        return not self.words.issuperset(USED_NAME.findall(code)) or any(unused)

    def goes_with(self, other):
        return (
            self.commands == other.commands
            and not self.alone
            and not other.alone
            and (self.declared - self.renamable).isdisjoint(other.declared - other.renamable)
            and not self.hides_from(other)
            and not other.hides_from(self)
        )

    def hides_from(self, other):
        """Whether a name could mean something else to `other` behind this source, such as `testing` if that is a namespace of ours, too."""
        return bool((self.own - self.renamable) & other.words or (self.namespaces - other.namespaces) & other.qualifiers)


def shared_command(entry):
    """The command of an entry of the compile database without the names of its source and its output."""
    return re.sub(r" -o \S+", "", entry["command"]).replace(entry["file"], SOURCE)


def groups(sources, most):
    """`sources` in groups of at most `most` that go together, the largest first."""
    made = []
    for source in sources:
        for group in made:
            if len(group) < most and all(source.goes_with(other) for other in group):
                group.append(source)
                break
        else:
            made.append([source])
    return sorted(made, key=len, reverse=True)


def joined(group):
    """The text of several sources as one, which may lie anywhere."""
    texts = []
    for number, source in enumerate(group):
        elsewhere = set().union(*(other.words for other in group if other is not source))
        # readability-duplicate-include begins anew behind a line that has to do with macros.
        texts.append("#undef NEXT_SOURCE\n" + renamed(movable(source.path), source.renamable & elsewhere, number) + "\n")
    return "".join(texts)


def movable(path):
    """The text of a source, with full paths for headers that lie beside it."""

    def full(include):
        header = path.parent / include[2]
        return f'{include[1]}"{header}"' if header.is_file() else include[0]

    return INCLUDE_BESIDE.sub(full, path.read_text(encoding="utf-8"))


def renamed(text, changed, number):
    """The text with a number behind the names in `changed`, in code."""
    return CODE_WORD.sub(lambda found: f"{found[0]}{number}" if found[0] in changed else found[0], text)
