#include "executor/verify/finding.h"

#include <algorithm>

namespace nitinol::verify {

bool Report::has(Fault fault) const {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) { return finding.fault == fault; });
}

std::string Report::text() const {
  std::string text;
  for (const Finding& finding : findings) {
    text += "rank " + std::to_string(finding.rank);
    if (finding.part >= 0) text += ", part " + std::to_string(finding.part);
    text += std::string(": ") + name_of(finding.fault) + ": " + finding.text + "\n";
  }
  return text;
}

}  // namespace nitinol::verify
