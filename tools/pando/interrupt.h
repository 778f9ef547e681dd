#pragma once

namespace pando {

/// From here on the first SIGINT or SIGTERM only sets a flag, so that a run can finish its step and
/// save; a second one ends the program at once.
void CatchInterrupts();

/// Whether one has come.
bool Interrupted();

}  // namespace pando
