// The ranks of this process that can be asked, and how the processes of their communicators are reached. Thread safe.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/secret.h"
#include "diagnostics/ras/ras.h"
#include "diagnostics/ras/report.h"

namespace nitinol::ras {

/// Where a process listens, and what proves that one belongs to a communicator of it.
struct Contact {
  SocketAddress at;
  Secret key;
};

/// The key of a communicator's health monitoring.
Secret ras_key(const Secret& communicator);

class Registry {
 public:
  void enter(const Newcomer& newcomer, Subject& subject);
  /// Waits for whoever asks the rank. A dump that is due is written. Does nothing for a rank that is not here.
  void leave(const CommunicatorId& id, int rank);
  bool empty() const;
  /// Keeps `service` as long as a rank of the communicator is here; true if it has none yet.
  bool needs_service(const CommunicatorId& id) const;
  void keep_service(const CommunicatorId& id, std::shared_ptr<void> service);

  /// This process's own name; nothing if no rank is here.
  std::optional<ProcessName> name() const;
  /// With the rosters of the communicators that are not in `known`.
  ProcessReport report(const std::vector<CommunicatorId>& known) const;
  std::vector<RankDump> dumps(bool as_text) const;
  /// The ways to a process, one for each communicator that it shares with this one.
  std::vector<Contact> contacts(std::uint64_t process) const;

  /// Flight recorders go to files of this name (see dump_path) once they are due.
  void set_dump_pattern(std::string pattern);
  /// The rank has failed, and a dump of it is due, once: write_due_dumps or leave do it.
  void want_dump_of_failure(const CommunicatorId& id, int rank);
  /// The same of all that have, also if they are only about to say so.
  void want_dumps_of_failures();
  void want_all_dumps();
  void write_due_dumps();

 private:
  struct Occupant {
    int rank = 0;
    Subject* subject = nullptr;
    bool dump_due = false;
    bool failure_noted = false;
    bool is_leaving = false;
    int visitors = 0;

    void note_failure() { dump_due = !std::exchange(failure_noted, true) || dump_due; }
  };
  struct Entry {
    Roster roster;
    Secret key;
    std::vector<std::optional<SocketAddress>> addresses;  ///< as roster.processes
    std::vector<std::uint64_t> pid_namespaces;            ///< the same
    std::uint64_t own_process = 0;
    std::vector<std::unique_ptr<Occupant>> occupants;
    std::shared_ptr<void> service;
  };
  /// While somebody asks a rank it does not leave. It may take its time to answer, on a GPU that hangs: nobody who
  /// wants something else waits for that under the lock.
  class Visit {
   public:
    /// Under the lock.
    Visit(const Registry& registry, const CommunicatorId& id, Occupant& occupant);
    /// Without it.
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    const CommunicatorId& id() const { return id_; }
    Occupant& occupant() const { return occupant_; }

   private:
    const Registry& registry_;
    const CommunicatorId id_;
    Occupant& occupant_;
  };
  enum class Whom { kAll, kWhoseDumpIsDue };

  static Entry make_entry(const Newcomer& newcomer);
  /// Under the lock.
  void visit(Whom whom, std::list<Visit>& visits) const;
  /// Of one who is visited, or leaves.
  void write_if_due(const CommunicatorId& id, Occupant& occupant);
  /// A process of this host.
  struct Neighbour {
    std::uint64_t number = 0;
    int pid = 0;
    std::uint64_t pid_namespace = 0;
  };
  static std::vector<Neighbour> neighbours(const Entry& entry);

  mutable std::condition_variable visit_over_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<CommunicatorId, Entry> entries_;
  std::string dump_pattern_;
};

/// `pattern` with %h, %p, %r (the rank), %c (the first letters of the communicator's name) and %% replaced.
std::string dump_path(const std::string& pattern, const CommunicatorId& id, int rank);
/// Whether a file of this name is to hold text instead of JSON.
bool is_text_path(const std::string& path);

}  // namespace nitinol::ras
