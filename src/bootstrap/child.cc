// Making the tree of a communicator that is split off another.
#include "bootstrap/child.h"

#include "base/error.h"
#include "bootstrap/exchange.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

// Which group a member means: all members of one must have listed the same ranks.
Secret group_secret(const Tree& parent, std::uint64_t number, const std::vector<int>& members) {
  ByteWriter writer;
  writer.integer(number);
  for (const int member : members) writer.integer(static_cast<std::int32_t>(member));
  const auto bytes = writer.take();
  return derive_secret(parent.secret(), "split", {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

bool plausible(const Tree& parent, const std::vector<int>& members, int my_index) {
  if (my_index < 0 || static_cast<std::size_t>(my_index) >= members.size()) return false;
  if (members[static_cast<std::size_t>(my_index)] != parent.rank()) return false;
  std::vector<bool> seen(static_cast<std::size_t>(parent.nranks()));
  for (const int member : members) {
    if (member < 0 || member >= parent.nranks() || seen[static_cast<std::size_t>(member)]) return false;
    seen[static_cast<std::size_t>(member)] = true;
  }
  return true;
}

struct OwnPart {
  std::shared_ptr<Tree> tree;
  std::optional<Error> problem;
};

// Whatever goes wrong here must not keep the others waiting in the exchange.
OwnPart start_own(Tree& parent, const std::vector<int>& members, int my_index, const std::atomic<bool>* abort_flag) {
  const std::uint64_t number = parent.next_child_number();
  OwnPart own;
  if (members.empty()) return own;
  if (!plausible(parent, members, my_index)) {
    own.problem.emplace(ncclInvalidArgument,
                        formatted("rank {} splits its communicator with a list of {} ranks that is wrong (a rank "
                                  "out of range or twice, or place {} is not its own)",
                                  parent.rank(), members.size(), my_index));
    return own;
  }
  TreeArguments arguments;
  arguments.rank = my_index;
  arguments.shape = TreeShape(static_cast<int>(members.size()), 1);
  arguments.secret = group_secret(parent, number, members);
  arguments.options = parent.options();
  arguments.abort_flag = abort_flag;
  try {
    own.tree = Tree::start(arguments);
  } catch (const Error& error) {
    own.problem = error;
  }
  return own;
}

// A member's line in the exchange: how to reach it, and the name of the group it means.
std::vector<std::byte> contact_line(const Tree& tree) {
  ByteWriter writer;
  const KeyId group = key_id(tree.secret());
  writer.block(group.data(), group.size());
  const auto reply = encode(ParentReply{tree.rank(), tree.listener_address(), tree.contact(), this_process()});
  writer.block(reply.data(), reply.size());
  return writer.take();
}

using Lines = std::vector<std::vector<std::byte>>;

// All members must mean the same group. Returns how to reach the parent in the new tree; nothing for its first rank.
std::optional<ParentReply> read_contacts(const Tree& tree, const Lines& lines, const std::vector<int>& members) {
  const KeyId mine = key_id(tree.secret());
  for (const int member : members) {
    ByteReader reader(lines[static_cast<std::size_t>(member)]);
    KeyId group{};
    reader.block(group.data(), group.size());
    if (!reader.ok()) {
      fail(ncclRemoteError, "rank {} of the communicator that is split could not take part; its own error says why",
           member);
    }
    if (group != mine) {
      fail(ncclInvalidUsage, "ranks {} and {} of the communicator that is split list different members of the new one",
           member, members[static_cast<std::size_t>(tree.rank())]);
    }
  }
  const int parent = tree.shape().parent(tree.rank());
  if (parent < 0) return std::nullopt;
  const int member = members[static_cast<std::size_t>(parent)];
  const auto reply = decode_parent_reply(std::span(lines[static_cast<std::size_t>(member)]).subspan(sizeof(KeyId)));
  if (!reply || reply->rank != parent) fail(ncclInternalError, "rank {} sent a malformed address for a split", member);
  return reply;
}

}  // namespace

std::shared_ptr<Tree> make_child_tree(Tree& parent, const std::vector<int>& members, int my_index,
                                      const std::atomic<bool>* abort_flag) {
  const OwnPart own = start_own(parent, members, my_index, abort_flag);
  const auto lines =
      exchange_all_gather_variable(parent, own.tree ? contact_line(*own.tree) : std::vector<std::byte>());
  if (own.problem) throw *own.problem;
  if (!own.tree) return nullptr;
  Tree& tree = *own.tree;
  const Deadline deadline = std::chrono::steady_clock::now() + tree.options().init_timeout;
  const Interrupt interrupt = [&parent] { parent.check(); };
  try {
    const auto above = read_contacts(tree, lines, members);
    if (above) tree.connect_parent(*above, deadline, interrupt);
    tree.wait_for_children(deadline, interrupt);
  } catch (const Error& error) {
    tree.report({tree.rank(), error.code(), error.what()});
    throw;
  }
  return own.tree;
}

}  // namespace nitinol
