// The C API: host functions of the device-side interface. Teams are answered; what needs kernels of the user's own is
// not built yet and says so.
#include "api/entry.h"
#include "comm/handle.h"
#include "nccl_device.h"

using namespace nitinol;

namespace {

ncclResult_t not_built(const char* function, ncclComm_t comm = nullptr) {
  return at_once(comm, [&]() -> ncclResult_t {
    fail(ncclInvalidUsage, "{}: communication from the user's own kernels is not built yet in this version", function);
  });
}

/// Asks the communicator; a bad one gives `otherwise` and sets the last error.
template <typename Answer, typename Question>
Answer ask(ncclComm_t comm, const char* function, Answer otherwise, const Question& question) {
  Answer answer = otherwise;
  static_cast<void>(at_once(comm, [&] {
    const Communicator& communicator = communicator_of(comm, function);
    communicator.require_initialised(function);
    answer = question(communicator);
    return ncclSuccess;
  }));
  return answer;
}

/// The own rank plus as many strides as `rank` is away in the team: all ranks share one host, where both teams
/// coincide.
int translate(ncclComm_t comm, ncclTeam_t team, int rank, const char* function) {
  return ask(comm, function, -1, [&](const Communicator& c) { return c.rank() + (rank - team.rank) * team.stride; });
}

}  // namespace

NITINOL_ENTRY(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm)) {
  return ask(comm, "ncclTeamWorld", ncclTeam_t{}, [](const Communicator& c) {
    return ncclTeam_t{c.ranks(), c.rank(), 1};
  });
}

NITINOL_ENTRY(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm)) {
  return ask(comm, "ncclTeamLsa", ncclTeam_t{}, [](const Communicator& c) {
    return ncclTeam_t{c.ranks(), c.rank(), 1};
  });
}

NITINOL_ENTRY(ncclTeam_t, ncclTeamRail, (ncclComm_t comm)) {
  return ask(comm, "ncclTeamRail", ncclTeam_t{}, [](const Communicator& c) { return ncclTeam_t{1, 0, c.ranks()}; });
}

NITINOL_ENTRY(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return translate(comm, team, rank, "ncclTeamRankToWorld");
}

NITINOL_ENTRY(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return translate(comm, team, rank, "ncclTeamRankToLsa");
}

NITINOL_ENTRY(ncclResult_t, ncclDevCommCreate, (ncclComm_t comm, const ncclDevCommRequirements_t*, ncclDevComm_t*)) {
  return not_built("ncclDevCommCreate", comm);
}

NITINOL_ENTRY(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm_t*)) {
  return not_built("ncclDevCommDestroy", comm);
}

NITINOL_ENTRY(ncclResult_t, ncclLsaBarrierCreateRequirement,
              (ncclTeam_t, int, ncclLsaBarrierHandle_t*, ncclDevResourceRequirements_t*)) {
  return not_built("ncclLsaBarrierCreateRequirement");
}

NITINOL_ENTRY(ncclResult_t, ncclGinBarrierCreateRequirement,
              (ncclComm_t comm, ncclTeam_t, int, ncclGinBarrierHandle_t*, ncclDevResourceRequirements_t*)) {
  return not_built("ncclGinBarrierCreateRequirement", comm);
}

NITINOL_ENTRY(int, ncclLLA2ACalcSlots, (int, int)) {
  static_cast<void>(not_built("ncclLLA2ACalcSlots"));
  return 0;
}

NITINOL_ENTRY(ncclResult_t, ncclLLA2ACreateRequirement,
              (int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*)) {
  return not_built("ncclLLA2ACreateRequirement");
}
