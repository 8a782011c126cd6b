#include "attention_plan.h"

#include <algorithm>
#include <cstring>

namespace espalier {
namespace {

constexpr int64_t kBlocksPerSegment = kSegment / kBlock;
constexpr int64_t kFewRows = 16;  // sequences with more read a block for enough rows by themselves

int compare_slots(const int32_t* x, const int32_t* y) {
  return std::memcmp(x, y, kBlock * sizeof(int32_t));
}

bool holds(Range outer, Range inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

}  // namespace

std::span<const int32_t> AttentionPlan::pieces_of(int64_t place) const {
  const auto begin = static_cast<size_t>(first_link_[static_cast<size_t>(place)]);
  const auto end = static_cast<size_t>(first_link_[static_cast<size_t>(place) + 1]);
  return std::span<const int32_t>(links_).subspan(begin, end - begin);
}

void AttentionPlan::make(const Step& step) {
  step_ = &step;
  make(true);
  if (num_results_ > limits_.most_results) make(false);
}

void AttentionPlan::make(bool is_shared) {
  members_.clear();
  tiles_.clear();
  tree_.clear();
  rows_.clear();
  runs_.clear();
  pieces_.clear();
  num_results_ = 0;
  for (int64_t i = 0; i < step_->num_sequences(); ++i) {
    const auto index = static_cast<size_t>(i);
    const int32_t row = step_->row_starts[index], slot = step_->slot_starts[index];
    const Member sequence{step_->slot_ids.data() + slot, step_->slot_starts[index + 1] - slot, row,
                          step_->row_starts[index + 1] - row};
    if (is_shared && sequence.num_rows <= std::min(kFewRows, limits_.rows_per_run)) {
      members_.push_back(sequence);
    } else {
      add_tiles(sequence, tiles_);
    }
  }
  const auto num_tiles = static_cast<int64_t>(tiles_.size());
  const bool is_lone = num_tiles >= limits_.enough_pieces || !is_shared;
  // Later tiles of a sequence see more, and what takes long is begun first.
  for (size_t i = tiles_.size(); i-- > 0;) {
    if (is_lone) {
      add_lone(tiles_[i]);
    } else {
      tree_.push_back(tiles_[i]);
    }
  }
  const Range all{0, static_cast<int64_t>(members_.size())};
  const auto place = static_cast<int64_t>(rows_.size());
  if (all.end > 0) add_tree(all, 0, place);
  for (const Member& member : members_) {
    for (int32_t i = 0; i < member.num_rows; ++i) rows_.push_back(member.first_row + i);
  }
  const size_t first_run = runs_.size();
  for (const Block& block : tree_) add_runs(block);
  add_pieces(first_run);
  link_rows();
}

// Rows of one sequence, as many at a time as a run may have.
void AttentionPlan::add_tiles(const Member& sequence, std::vector<Block>& to) {
  for (int32_t first = 0; first < sequence.num_rows;) {
    const auto most = static_cast<int32_t>(limits_.rows_per_run);
    const int32_t count = std::min(most, sequence.num_rows - first);
    const auto place = static_cast<int64_t>(rows_.size());
    for (int32_t i = 0; i < count; ++i) rows_.push_back(sequence.first_row + first + i);
    const int64_t blocks = chunks_of(sequence.context, kBlock);
    to.push_back({{place, place + count}, {0, blocks}, sequence.slots});
    first += count;
  }
}

int64_t AttentionPlan::rows_of(Range members) const {
  int64_t rows = 0;
  for (int64_t i = members.begin; i < members.end; ++i) {
    rows += members_[static_cast<size_t>(i)].num_rows;
  }
  return rows;
}

// The first block from `block` on that not all members have in full and in the same slots.
int64_t AttentionPlan::shared_end(Range members, int64_t block) const {
  const Member& first = members_[static_cast<size_t>(members.begin)];
  for (;; ++block) {
    const int64_t begin = block * kBlock;
    for (int64_t i = members.begin; i < members.end; ++i) {
      const Member& member = members_[static_cast<size_t>(i)];
      if (member.context < begin + kBlock) return block;
      if (compare_slots(member.slots + begin, first.slots + begin) != 0) return block;
    }
  }
}

// Members that share all blocks before `block`; their rows begin at `place`.
void AttentionPlan::add_tree(Range members, int64_t block, int64_t place) {
  const Member& first = members_[static_cast<size_t>(members.begin)];
  const int64_t num_rows = rows_of(members);
  if (members.end - members.begin == 1) {
    const int64_t end = chunks_of(first.context, kBlock);
    if (block < end) tree_.push_back({{place, place + num_rows}, {block, end}, first.slots});
    return;
  }
  const int64_t end = shared_end(members, block);
  const auto is_before = [end](const Member& x, const Member& y) {
    const bool x_is_short = x.context < (end + 1) * kBlock;
    const bool y_is_short = y.context < (end + 1) * kBlock;
    if (x_is_short || y_is_short) return x_is_short && !y_is_short;
    return compare_slots(x.slots + end * kBlock, y.slots + end * kBlock) < 0;
  };
  std::sort(members_.begin() + members.begin, members_.begin() + members.end, is_before);
  if (end > block && num_rows > limits_.rows_per_run) {
    add_chunks(members, block, place);
    return;
  }
  const Member& any = members_[static_cast<size_t>(members.begin)];
  if (end > block) tree_.push_back({{place, place + num_rows}, {block, end}, any.slots});
  add_children(members, end, place);
}

void AttentionPlan::add_chunks(Range members, int64_t block, int64_t place) {
  for (int64_t begin = members.begin; begin < members.end;) {
    int64_t end = begin + 1;
    int64_t num_rows = rows_of({begin, end});
    while (end < members.end) {
      const int64_t next = members_[static_cast<size_t>(end)].num_rows;
      if (num_rows + next > limits_.rows_per_run) break;
      num_rows += next;
      ++end;
    }
    add_tree({begin, end}, block, place);
    place += num_rows;
    begin = end;
  }
}

// Groups of neighbours that have the same slots in `block`.
void AttentionPlan::add_children(Range members, int64_t block, int64_t place) {
  for (int64_t begin = members.begin; begin < members.end;) {
    const Member& first = members_[static_cast<size_t>(begin)];
    const int64_t needed = (block + 1) * kBlock;
    int64_t end = begin + 1;
    while (first.context >= needed && end < members.end &&
           compare_slots(members_[static_cast<size_t>(end)].slots + block * kBlock,
                         first.slots + block * kBlock) == 0) {
      ++end;
    }
    const int64_t num_rows = rows_of({begin, end});
    add_tree({begin, end}, block, place);
    place += num_rows;
    begin = end;
  }
}

// From the first to the last position that some row sees.
Range AttentionPlan::seen_positions(const Block& block) const {
  int64_t first = INT64_MAX, last = 0;
  for (int64_t place = block.rows.begin; place < block.rows.end; ++place) {
    const auto row = static_cast<size_t>(rows_[static_cast<size_t>(place)]);
    const int64_t position = step_->positions[row];
    first = std::min(first, window_ > 0 ? std::max<int64_t>(0, position - window_ + 1) : 0);
    last = std::max(last, position);
  }
  return {first, last + 1};
}

// One run in each segment.
void AttentionPlan::add_runs(const Block& block) {
  const Range seen = seen_positions(block);
  const int64_t last = std::min(block.blocks.end, chunks_of(seen.end, kBlock));
  for (int64_t begin = std::max(block.blocks.begin, seen.begin / kBlock); begin < last;) {
    const int64_t end = std::min(last, (begin / kBlocksPerSegment + 1) * kBlocksPerSegment);
    runs_.push_back({block.rows, {begin, end}, block.slots, true, seen.end});
    begin = end;
  }
}

void AttentionPlan::add_lone(const Block& block) {
  const auto first = static_cast<int64_t>(runs_.size());
  add_runs(block);
  pieces_.push_back({block.rows, {first, static_cast<int64_t>(runs_.size())}, true, 0});
}

// Runs of one segment and nested rows make a piece: a child's rows go on where its parent's ended.
void AttentionPlan::add_pieces(size_t first_run) {
  const auto segment = [](const AttentionRun& run) { return run.blocks.begin / kBlocksPerSegment; };
  std::stable_sort(
      runs_.begin() + static_cast<std::ptrdiff_t>(first_run), runs_.end(),
      [&](const AttentionRun& x, const AttentionRun& y) { return segment(x) < segment(y); });
  int64_t last_segment = -1;
  for (size_t i = first_run; i < runs_.size(); ++i) {
    AttentionRun& run = runs_[i];
    const auto index = static_cast<int64_t>(i);
    if (segment(run) == last_segment && holds(pieces_.back().rows, run.rows)) {
      run.is_fresh = false;
      pieces_.back().runs.end = index + 1;
      continue;
    }
    last_segment = segment(run);
    pieces_.push_back({run.rows, {index, index + 1}, false, num_results_});
    num_results_ += run.rows.end - run.rows.begin;
  }
}

void AttentionPlan::link_rows() {
  first_link_.assign(rows_.size() + 2, 0);
  for (const AttentionPiece& piece : pieces_) {
    if (piece.is_lone) continue;
    for (int64_t i = piece.rows.begin; i < piece.rows.end; ++i) {
      ++first_link_[static_cast<size_t>(i) + 2];
    }
  }
  for (size_t i = 2; i < first_link_.size(); ++i) first_link_[i] += first_link_[i - 1];
  links_.resize(static_cast<size_t>(first_link_.back()));
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].is_lone) continue;
    for (int64_t place = pieces_[i].rows.begin; place < pieces_[i].rows.end; ++place) {
      int32_t& next = first_link_[static_cast<size_t>(place) + 1];
      links_[static_cast<size_t>(next++)] = static_cast<int32_t>(i);
    }
  }
}

}  // namespace espalier
