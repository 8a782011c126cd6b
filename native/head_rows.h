// In which order the rows of a step go through the LM head, and which tiles of it each of them
// wants: rows of which every logit is wanted, then rows of which some are.
//
// Knows steps and the size of the vocabulary; no weights and no threads.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels.h"
#include "step.h"

namespace espalier {

// Neighbouring rows, in the order above, with neighbouring tiles that all of them want.
struct HeadBlock {
  Range rows, tiles;
};

class HeadRows {
 public:
  // `most_paired_rows` is that of the kernels: where there are more rows they are computed in
  // blocks of 16, and a block that is not full takes rows that want less along.
  HeadRows(int64_t vocab_size, int64_t most_paired_rows);

  // Takes a step that is known to be good. Throws std::bad_alloc.
  void begin(const Step& step);

  int64_t num_rows() const { return static_cast<int64_t>(order_.size()); }
  // Rows of which every logit is computed; they come first.
  int64_t num_whole() const { return num_whole_; }
  // For each row its place in step.logit_rows.
  const std::vector<int32_t>& order() const { return order_; }
  // Rows keep the order of the step.
  bool is_in_order() const { return is_in_order_; }

  // What is wanted of the other rows. Ascending by tile, and no product comes twice.
  const std::vector<HeadBlock>& blocks() const { return blocks_; }

  int64_t num_bytes() const;

 private:
  using TileOfRow = std::pair<int32_t, int32_t>;  // (tile, row)

  void order_rows(const Step& step);
  void find_wanted(const Step& step);
  void sort_wanted();
  void add_blocks();

  const int64_t num_tiles_, most_paired_rows_;
  int64_t num_whole_ = 0;
  bool is_in_order_ = true;
  std::vector<int32_t> order_;
  std::vector<TileOfRow> wanted_, sorted_;
  std::vector<int32_t>
      of_tile_;  // by tile: the last row that wants it; where its rows are put next
  std::vector<HeadBlock> blocks_;
};

}  // namespace espalier
