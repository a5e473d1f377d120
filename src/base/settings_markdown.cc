// The settings table as a page of documentation.
#include "base/error.h"
#include "base/settings.h"

namespace nitinol {
namespace {

const char* type_name(SettingType type) {
  switch (type) {
    case SettingType::kText: return "text";
    case SettingType::kInteger: return "number";
    case SettingType::kSwitch: return "0 or 1";
  }
  return "";
}

// A bar would end the table's cell.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string default_cell(const SettingRow& row) {
  return *row.default_text == '\0' ? "not set" : "`" + cell(row.default_text) + "`";
}

constexpr const char* kOpening = R"(# Settings

Every environment variable of Nitinol. This page is made from the table in src/base/settings_table.cc. Of CUDA's own the flavour
`cuda` sets `CUDA_DEVICE_MAX_CONNECTIONS` to 32 when it is loaded, if it is not set, but not where CUDA's driver has started before, nor where
it is preloaded (`LD_PRELOAD`): a program that has a number of its own for it would find it set. With more than 8 ranks of one process on one GPU set it yourself there.

A value comes from the environment; else from the user's file, which is the one that `NCCL_CONF_FILE` names or `.nccl.conf` in the home
directory; else from `/etc/nccl.conf`. A file holds lines `NAME=VALUE`: the value is all that follows the first `=`, nothing is trimmed,
lines that begin with `#` are skipped, and the first line for a name counts. Values from files become environment variables of the process.
A FIFO, a folder or a device (but `/dev/null`) is not read, which is noted in the log.

Numbers are decimal, or hexadecimal after `0x`; spaces around one, and what stands behind it after a space, do not count; they are read once. Words may be written in small or capital letters. A value that is not a number, is out of range, or is none of the words
that there are to choose from, is noted in the log and the default is used; but an unknown word in `NCCL_ALGO` or `NCCL_PROTO`, a malformed `NCCL_COMM_ID`
and an `NCCL_SOCKET_IFNAME` that no interface matches are errors. Where it says 0 or 1 any number but 0 counts as 1. The empty string counts as not set, except for
`NCCL_DEBUG_SUBSYS`, `NCCL_DEBUG_TIMESTAMP_FORMAT`, `NCCL_DEBUG_TIMESTAMP_LEVELS` and `NCCL_COMM_ID`. With `NCCL_DEBUG=INFO` each variable that takes effect is logged (but for those
of the log itself and `NCCL_CONF_FILE`), and with `NCCL_DEBUG=WARN` each `NITINOL_*` variable that does not exist, and each `NCCL_*` variable whose name
is near a known one, with that name; other unknown ones at INFO.

| name | type | default | meaning | since |
|---|---|---|---|---|
)";

constexpr const char* kSecondPart = R"(
## Known, without effect in this version

NCCL documents these; they are accepted, and a line at `INFO` says that they do nothing.

| name | type | meaning | since |
|---|---|---|---|
)";

}  // namespace

std::string settings_markdown() {
  std::string page = kOpening;
  for (const SettingRow& row : settings_table()) {
    if (!row.acted_on()) continue;
    page += formatted("| `{}` | {} | {} | {} | {} |\n", row.name, type_name(row.type), default_cell(row),
                      cell(row.help), row.since);
  }
  page += kSecondPart;
  for (const SettingRow& row : settings_table()) {
    if (row.acted_on()) continue;
    page += formatted("| `{}` | {} | {} | {} |\n", row.name, type_name(row.type), cell(row.help), row.since);
  }
  return page;
}

}  // namespace nitinol
