// Cuts the attention of a step into pieces of work, once for all layers with the same window.
//
// A run is some rows over blocks of positions in which all of them have the same slots, so that
// keys and values are read once for all of them. A piece is a list of runs, ascending for each
// row, that one thread works off. The plan never changes a result: runs end at borders of blocks,
// pieces at borders of segments, and segments are folded in order, by whomever.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels.h"
#include "step.h"

namespace espalier {

// Rows are ranges of places in AttentionPlan::rows().
struct AttentionRun {
  Range rows, blocks;
  const int32_t* slots;  // of each position
  bool is_fresh;         // the first of its rows in its segment
  int64_t end;           // no row sees a position from here on
};

struct AttentionPiece {
  Range rows, runs;
  bool is_lone;          // it has all runs of its rows; other pieces have those of one segment
  int64_t first_result;  // its place among the results of pieces, one a row; lone ones have none
};

struct AttentionLimits {
  int64_t rows_per_run;   // at most; larger runs are cut
  int64_t enough_pieces;  // fewer lone pieces would leave threads idle
  int64_t most_results;   // more would take too much memory
};

class AttentionPlan {
 public:
  AttentionPlan(int64_t window, const AttentionLimits& limits) : window_(window), limits_(limits) {}

  // The step must outlive the plan's use.
  void make(const Step& step);

  int64_t window() const { return window_; }
  std::span<const int32_t> rows() const { return rows_; }
  std::span<const AttentionRun> runs() const { return runs_; }
  std::span<const AttentionPiece> pieces() const { return pieces_; }
  int64_t num_results() const { return num_results_; }
  // Pieces that hold the row at a place, ascending by segment; lone ones are not listed.
  std::span<const int32_t> pieces_of(int64_t place) const;

 private:
  struct Member {  // a sequence with few rows
    const int32_t* slots;
    int64_t context;
    int32_t first_row, num_rows;
  };
  struct Block {  // some rows over some blocks, across segments
    Range rows, blocks;
    const int32_t* slots;
  };

  void make(bool is_shared);
  void add_tiles(const Member& sequence, std::vector<Block>& to);
  void add_tree(Range members, int64_t block, int64_t place);
  void add_chunks(Range members, int64_t block, int64_t place);
  void add_children(Range members, int64_t block, int64_t place);
  int64_t shared_end(Range members, int64_t block) const;
  int64_t rows_of(Range members) const;
  Range seen_positions(const Block& block) const;
  void add_runs(const Block& block);
  void add_lone(const Block& block);
  void add_pieces(size_t first_run);
  void link_rows();

  const int64_t window_;
  const AttentionLimits limits_;
  const Step* step_ = nullptr;
  std::vector<Member> members_;
  std::vector<Block> tiles_, tree_;  // in the tree parents come before their children
  std::vector<int32_t> rows_;
  std::vector<AttentionRun> runs_;
  std::vector<AttentionPiece> pieces_;
  std::vector<int32_t> first_link_, links_;  // pieces of each place
  int64_t num_results_ = 0;
};

}  // namespace espalier
