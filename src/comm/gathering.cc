#include "comm/gathering.h"

#include <algorithm>
#include <utility>

namespace nitinol {

bool Gathering::add(Leaver leaver) {
  if (std::find(gone.begin(), gone.end(), leaver.rank) != gone.end()) return false;
  leavers.push_back(std::move(leaver));
  return true;
}

bool Gathering::leave_out(int rank) {
  if (on_its_way) return false;
  std::erase_if(leavers, [&](const Leaver& leaver) { return leaver.rank == rank; });
  gone.push_back(rank);
  return true;
}

bool Gathering::sets_off() {
  on_its_way = leavers.size() + gone.size() == ranks;
  return on_its_way;
}

std::vector<int> Gathering::done_with() const {
  std::vector<int> done = gone;
  for (const Leaver& leaver : leavers) done.push_back(leaver.rank);
  return done;
}

}  // namespace nitinol
