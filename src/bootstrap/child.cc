// Making the tree of a communicator that is split off another.
#include "bootstrap/child.h"

#include <chrono>
#include <new>
#include <thread>

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

// As the parent knows them, if it does.
std::vector<int> devices_of(const Tree& parent, const std::vector<int>& members) {
  const std::vector<int> all = parent.devices();
  std::vector<int> devices;
  if (all.empty()) return devices;
  for (const int member : members) devices.push_back(all[static_cast<std::size_t>(member)]);
  return devices;
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
  arguments.options.operation_timeout = parent.operation_timeout();  // a split has the time of its parent's operations
  arguments.abort_flag = abort_flag;
  try {
    own.tree = Tree::start(arguments);
    if (const auto devices = devices_of(parent, members); !devices.empty()) own.tree->know_devices(devices);
  } catch (const std::exception& thrown) {
    own.problem = as_error(thrown);
  }
  return own;
}

// A member's line in the exchange: the name of the group it means and how to reach it; or no group's name, and why it
// cannot take part.
std::vector<std::byte> contact_line(const Tree& parent, const OwnPart& own) {
  ByteWriter writer;
  if (own.problem) {
    writer.block(KeyId{}.data(), sizeof(KeyId));
    const std::string sentence = formatted("{} failed in a split: {}", parent.name(), own.problem->what());
    const auto failure = encode(Failure{parent.rank(), own.problem->code(), sentence});
    writer.block(failure.data(), failure.size());
    return writer.take();
  }
  if (!own.tree) return {};
  const Tree& tree = *own.tree;
  const KeyId group = key_id(tree.secret());
  writer.block(group.data(), group.size());
  const auto reply = encode(ParentReply{tree.rank(), tree.listener_address(), tree.contact(), this_process()});
  writer.block(reply.data(), reply.size());
  return writer.take();
}

using Lines = std::vector<std::vector<std::byte>>;

// Throws what kept the member from taking part.
void check_group(std::span<const std::byte> line, const KeyId& mine, int member, int self) {
  ByteReader reader(line);
  KeyId group{};
  reader.block(group.data(), group.size());
  if (!reader.ok()) {
    fail(ncclInvalidUsage, "rank {} joins no new communicator in a split, but rank {} expects it in its own", member,
         self);
  }
  if (group == mine) return;
  if (group == KeyId{}) {
    const auto failure = decode_failure(line.subspan(sizeof(KeyId)));
    if (failure) throw Error(ncclRemoteError, failure->sentence);
  }
  fail(ncclInvalidUsage, "ranks {} and {} of the communicator that is split list different members of the new one",
       member, self);
}

ParentReply read_contact(const Lines& lines, const std::vector<int>& members, int rank) {
  const int member = members[static_cast<std::size_t>(rank)];
  const auto reply = decode_parent_reply(std::span(lines[static_cast<std::size_t>(member)]).subspan(sizeof(KeyId)));
  if (!reply || reply->rank != rank) fail(ncclInternalError, "rank {} sent a malformed address for a split", member);
  return *reply;
}

// All members must mean the same group. Returns how to reach the parent in the new tree; nothing for its first rank.
std::optional<ParentReply> read_contacts(Tree& tree, const Lines& lines, const std::vector<int>& members) {
  const KeyId mine = key_id(tree.secret());
  const int self = members[static_cast<std::size_t>(tree.rank())];
  for (const int member : members) check_group(lines[static_cast<std::size_t>(member)], mine, member, self);
  for (const int child : tree.shape().children(tree.rank())) {
    tree.expect_child(child, read_contact(lines, members, child).identity);
  }
  const int parent = tree.shape().parent(tree.rank());
  if (parent < 0) return std::nullopt;
  return read_contact(lines, members, parent);
}

// A rank that fails tells the parent's ranks why before it leaves the new tree, but its end there may be seen before.
Error first_cause(const Tree& parent, const Tree& tree, const std::exception& thrown) {
  const auto deadline = std::chrono::steady_clock::now() + parent.options().patience_with_cause;
  while (tree.has_lost_neighbour()) {
    if (const auto first = parent.failure()) return {first->result, first->sentence};
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return as_error(thrown);
}

// The parent's ranks hear of a failure over the tree that stands: over the new one not everybody could be told yet.
void come_together(Tree& parent, Tree& tree, const std::optional<ParentReply>& above) {
  const Deadline deadline = std::chrono::steady_clock::now() + tree.operation_timeout();
  const Interrupt ask_parent = [&parent] { parent.check(); };
  const bool is_waited_for = !tree.shape().children(tree.rank()).empty();
  const Interrupt interrupt = [&] {
    ask_parent();
    if (is_waited_for) tree.check_listener();
  };
  try {
    if (above) tree.connect_parent(*above, deadline, interrupt);
    tree.wait_for_children(deadline, interrupt);
    enter_together(tree, ask_parent);
  } catch (const std::exception& thrown) {
    const Error error = first_cause(parent, tree, thrown);
    const std::string sentence = formatted("{} failed in a split: {}", parent.name(), error.what());
    const Failure failure{parent.rank(), ncclRemoteError, sentence};
    parent.report(failure);
    const Failure first = parent.failure().value_or(failure);
    tree.report({tree.rank(), first.result, first.sentence});
    throw error;
  }
}

std::shared_ptr<Tree> make_tree(Tree& parent, const std::vector<int>& members, int my_index,
                                const std::atomic<bool>* abort_flag) {
  const OwnPart own = start_own(parent, members, my_index, abort_flag);
  Lines lines;
  try {
    lines = exchange_all_gather_variable(parent, contact_line(parent, own));
  } catch (const Error&) {  // maybe because of this rank's own problem, of which others know already
    if (!own.problem) throw;
  }
  if (own.problem) throw *own.problem;
  if (!own.tree) return nullptr;
  const auto above = read_contacts(*own.tree, lines, members);
  come_together(parent, *own.tree, above);
  return own.tree;
}

}  // namespace

std::shared_ptr<Tree> make_child_tree(Tree& parent, const std::vector<int>& members, int my_index,
                                      const std::atomic<bool>* abort_flag) {
  try {
    return make_tree(parent, members, my_index, abort_flag);
  } catch (const std::bad_alloc&) {  // the others wait for what was to be told to them
    parent.report_lack_of_memory();
    throw;
  }
}

}  // namespace nitinol
