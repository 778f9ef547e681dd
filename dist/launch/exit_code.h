#pragma once

namespace pando {

/// How a program ends, for schedulers and agents: whether to run the same command again.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,        ///< something went wrong that running again may or may not mend
  kWrongInput = 2,    ///< options, data or a folder: don't run it again as it is
  kDiverged = 3,      ///< the loss is no number any more: don't run it again as it is
  kOutOfMemory = 4,   ///< don't run it again as it is
  kInterrupted = 75,  ///< stopped by a signal after a save: run it again to go on (EX_TEMPFAIL)
  kPeerLost = 76,     ///< another rank is to blame: run it again to go on
};

}  // namespace pando
