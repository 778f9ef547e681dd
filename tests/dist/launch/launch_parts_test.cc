// The parts of the launcher that need no processes. (tests/faults has those.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "dist/launch/exit_code.h"
#include "dist/launch/line_buffer.h"
#include "dist/launch/verdict.h"
#include "dist/launch/worker_environment.h"

namespace pando {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<WorkerEnvironment> Find(const std::map<std::string, std::string>& variables) {
  return FindWorkerEnvironment([&variables](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

TEST(WorkerEnvironment, FindsWhoeverStartedIt) {
  const std::pair<std::string, std::string> store = {"PANDO_STORE", "http://a:1"};
  EXPECT_TRUE(Find({})->alone());
  // A shell within an allocation is no rank.
  EXPECT_TRUE(Find({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}})->alone());
  const auto torchrun = Find({store, {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}});
  EXPECT_EQ(torchrun->rank, 3);
  EXPECT_EQ(torchrun->world_size, 4);
  EXPECT_EQ(torchrun->local_rank, 1);
  EXPECT_EQ(torchrun->launcher, "torchrun");
  EXPECT_EQ(Find({store,
                  {"SLURM_PROCID", "2"},
                  {"SLURM_NTASKS", "3"},
                  {"SLURM_LOCALID", "1"},
                  {"SLURM_STEP_ID", "0"}})
                ->rank,
            2);
  EXPECT_EQ(Find({store, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})->rank, 1);
  EXPECT_EQ(Find({store, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})->launcher, "mpirun");
  // One task of Slurm's, which starts ranks of its own.
  EXPECT_EQ(Find({store,
                  {"SLURM_PROCID", "0"},
                  {"SLURM_NTASKS", "1"},
                  {"SLURM_STEP_ID", "0"},
                  {"RANK", "1"},
                  {"WORLD_SIZE", "2"}})
                ->rank,
            1);
  EXPECT_TRUE(
      Find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}})->alone());
  // A batch script of an allocation for four tasks, before it has called srun.
  EXPECT_TRUE(Find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})->alone());
}

TEST(WorkerEnvironment, SaysWhatIsWrong) {
  const auto message = [](const std::map<std::string, std::string>& v) {
    return std::string(Find(v).status().message());
  };
  EXPECT_THAT(message({{"RANK", "1"}}), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(message({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=x"));
  EXPECT_THAT(message({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=2"));
  EXPECT_THAT(message({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=-1"));
  EXPECT_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("pando store"));
}

TEST(LineBuffer, CutsIntoLines) {
  std::vector<std::string> lines;
  LineBuffer buffer([&lines](const std::string& line) { lines.push_back(line); });
  for (const char* part : {"a", "b\nc", "\n\n", "d"}) buffer.Append(part);
  EXPECT_THAT(lines, ElementsAre("ab", "c", ""));
  buffer.Finish();
  EXPECT_THAT(lines, ElementsAre("ab", "c", "", "d"));
  lines.clear();
  // A line that doesn't end is cut, not kept for ever; one that ends just there is one line.
  buffer.Append(std::string((1 << 20) + 5, 'x'));
  buffer.Append("\n" + std::string(1 << 20, 'y') + "\nz\n");
  EXPECT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0].size(), 1U << 20);
  EXPECT_EQ(lines[1], "xxxxx");
  EXPECT_EQ(lines[2], std::string(1 << 20, 'y'));
  EXPECT_EQ(lines[3], "z");
}

WorkerReport Rank(int rank, ExitReason exit, bool ended, int64_t at, int64_t silent,
                  int64_t collectives) {
  WorkerReport r;
  r.rank = rank;
  r.exit = exit;
  r.ended = ended;
  r.ended_ms = at;
  r.silent_ms = silent;
  r.collectives = collectives;
  r.step = 7;
  r.phase = Phase::kForward;
  return r;
}

TEST(Verdict, BlamesWhoDiedByItselfFirst) {
  const ExitReason lost{kPeerLost, 0}, killed{0, 9}, failed{3, 0};
  const Verdict v = Judge({Rank(0, lost, true, 5, 0, 10), Rank(1, failed, true, 9, 0, 10),
                           Rank(2, killed, true, 8, 0, 11), Rank(3, {}, false, 0, 5000, 3)});
  EXPECT_EQ(v.rank, 2);
  EXPECT_EQ(v.exit_code, kFailed);
  EXPECT_THAT(v.text, HasSubstr("signal 9"));
  EXPECT_THAT(v.text, HasSubstr("forward of step 7"));
  EXPECT_EQ(Judge({Rank(1, failed, true, 9, 0, 10)}).exit_code, 3);
}

TEST(Verdict, BlamesWhoDoesNotRunAndThenWhoIsBehind) {
  const ExitReason lost{kPeerLost, 0};
  EXPECT_EQ(Judge({Rank(0, lost, true, 5, 0, 10), Rank(1, {}, false, 0, 4000, 12)}).rank, 1);
  EXPECT_EQ(Judge({Rank(0, lost, true, 5, 0, 10), Rank(1, {}, false, 0, 60, 9),
                   Rank(2, lost, true, 5, 0, 11)})
                .rank,
            1);
  // Somebody runs no more, and is no reason not to run the job again.
  EXPECT_EQ(Judge({Rank(0, lost, true, 5, 0, 10), Rank(1, {}, false, 0, 4000, 12)}).exit_code,
            kPeerLost);
  EXPECT_EQ(Judge({}).weight, Verdict::kNobody);
  // Stopped before it could say anything, while the others formed in vain.
  WorkerReport speaks = Rank(0, lost, true, 5, 0, 0);
  speaks.heard = true;
  EXPECT_EQ(Judge({speaks, Rank(1, {}, false, 0, 0, 0)}).rank, 1);
  // A program that never says anything is no suspect for that.
  EXPECT_EQ(Judge({Rank(0, {3, 0}, true, 5, 0, 0), Rank(1, {}, false, 0, 0, 0)}).rank, 0);
}

TEST(Verdict, TravelsAsText) {
  Verdict v;
  v.weight = Verdict::kSilent;
  v.order = -5;
  v.rank = 3;
  v.exit_code = 4;
  v.text = "text \xFF of it";
  v.last_lines = {"a", "b\n"};
  const auto back = Verdict::Parse(v.Serialize());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->weight, v.weight);
  EXPECT_EQ(back->order, -5);
  EXPECT_EQ(back->rank, 3);
  EXPECT_EQ(back->last_lines, v.last_lines);
  EXPECT_FALSE(Verdict::Parse("{}").ok());
  EXPECT_FALSE(Verdict::Parse("garbage").ok());
}

}  // namespace
}  // namespace pando
