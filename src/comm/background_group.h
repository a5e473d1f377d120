// A group on non-blocking communicators that has to wait for something before all of it is in streams, and so goes on
// when the call has returned.
#pragma once

#include <vector>

#include "comm/batch.h"

namespace nitinol {

/// Each communicator goes on in its own background thread, which whoever ends it waits for. All get ready at the same
/// time; once all are, they are submitted one after the other, in the given order. All are in progress until the whole
/// group is in the streams.
///
/// If one of them fails, is aborted or revoked before that, the others fail at once, with the same code and a sentence
/// that tells which one it was and why. An error of a group counts for all its communicators, as the contract of
/// ncclGroupEnd has it, and success would be a lie about what was not launched. Their other ranks hear of it, too: they
/// would wait for these for ever.
///
/// Throws Error if it cannot even begin: all have failed then.
void go_on_in_background(std::vector<Batch> batches);

}  // namespace nitinol
