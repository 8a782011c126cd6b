#include "head_rows.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace espalier {
namespace {

constexpr int64_t kMostTilesOfBlock = 8;  // more leave nothing to share among threads

int64_t bytes_of(const auto& vector) {
  return static_cast<int64_t>(vector.capacity() * sizeof(vector[0]));
}

std::span<const int32_t> wanted_ids_of(const Step& step, int32_t logit_row) {
  const auto i = static_cast<size_t>(logit_row);
  const auto begin = static_cast<size_t>(step.wanted_starts[i]);
  return step.wanted_ids.subspan(begin, static_cast<size_t>(step.wanted_starts[i + 1]) - begin);
}

}  // namespace

HeadRows::HeadRows(int64_t vocab_size, int64_t most_paired_rows)
    : num_tiles_(padded_to_lanes(vocab_size) / kLanes), most_paired_rows_(most_paired_rows) {}

void HeadRows::begin(const Step& step) {
  blocks_.clear();
  order_.clear();
  is_in_order_ = true;
  if (step.wanted_starts.empty()) {
    order_.resize(step.logit_rows.size());
    std::iota(order_.begin(), order_.end(), 0);
    num_whole_ = num_rows();
    return;
  }
  order_rows(step);
  if (num_whole_ == num_rows()) return;
  find_wanted(step);
  sort_wanted();
  add_blocks();
}

void HeadRows::order_rows(const Step& step) {
  const auto num_rows = static_cast<int32_t>(step.logit_rows.size());
  for (int32_t row = 0; row < num_rows; ++row) {
    if (wanted_ids_of(step, row).empty()) order_.push_back(row);
  }
  num_whole_ = this->num_rows();
  for (int32_t row = 0; row < num_rows; ++row) {
    if (!wanted_ids_of(step, row).empty()) order_.push_back(row);
  }
  is_in_order_ = std::is_sorted(order_.begin(), order_.end());
  if (num_whole_ <= most_paired_rows_) return;
  num_whole_ = std::min<int64_t>(num_rows, padded_to_lanes(num_whole_));
}

void HeadRows::find_wanted(const Step& step) {
  wanted_.clear();
  of_tile_.assign(static_cast<size_t>(num_tiles_), -1);
  for (auto row = static_cast<int32_t>(num_whole_); row < num_rows(); ++row) {
    for (const int32_t id : wanted_ids_of(step, order_[static_cast<size_t>(row)])) {
      const int32_t tile = id / kLanes;
      int32_t& last_row = of_tile_[static_cast<size_t>(tile)];
      if (last_row == row) continue;
      last_row = row;
      wanted_.emplace_back(tile, row);
    }
  }
}

// By tile, then by row. One pass for many rows, whose number times that of tiles std::sort would
// take as long for as their products take.
void HeadRows::sort_wanted() {
  if (std::is_sorted(wanted_.begin(), wanted_.end())) return;
  of_tile_.assign(static_cast<size_t>(num_tiles_), 0);
  for (const auto& [tile, row] : wanted_) ++of_tile_[static_cast<size_t>(tile)];
  std::exclusive_scan(of_tile_.begin(), of_tile_.end(), of_tile_.begin(), 0);
  sorted_.resize(wanted_.size());
  for (const TileOfRow& one : wanted_) {
    sorted_[static_cast<size_t>(of_tile_[static_cast<size_t>(one.first)]++)] = one;
  }
  wanted_.swap(sorted_);
}

void HeadRows::add_blocks() {
  bool may_grow = false;  // the last block holds all rows of its tiles
  for (size_t begin = 0; begin < wanted_.size();) {
    const auto [tile, first_row] = wanted_[begin];
    size_t end = begin + 1;
    int32_t next_row = first_row + 1;
    for (; end < wanted_.size() && wanted_[end] == TileOfRow{tile, next_row}; ++end) ++next_row;
    const bool is_first = begin == 0 || wanted_[begin - 1].first != tile;
    const bool is_all = is_first && (end == wanted_.size() || wanted_[end].first != tile);
    HeadBlock* last = blocks_.empty() ? nullptr : &blocks_.back();
    if (may_grow && is_all && last->rows.begin == first_row && last->rows.end == next_row &&
        last->tiles.end == tile && tile - last->tiles.begin < kMostTilesOfBlock) {
      ++last->tiles.end;
    } else {
      blocks_.push_back({{first_row, next_row}, {tile, tile + 1}});
    }
    may_grow = is_all;
    begin = end;
  }
}

int64_t HeadRows::num_bytes() const {
  return bytes_of(order_) + bytes_of(wanted_) + bytes_of(sorted_) + bytes_of(of_tile_) +
         bytes_of(blocks_);
}

}  // namespace espalier
