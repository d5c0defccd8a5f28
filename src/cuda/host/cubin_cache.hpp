// Compiled kernels on disk. An entry is one file, published by an atomic rename, that carries its whole key and a
// digest: readers in other processes see it complete or not at all, and a broken entry counts as missing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.hpp"

namespace onchip::cuda {

/// What an entry is found by: a name for people, and everything that its content depends on.
struct CubinKey {
  std::string name;
  std::string text;

  /// The name, and 128 bits of the text's digest.
  std::string file_name() const;
};

/// The entry's cubin; false when there is none, or one that is broken or belongs to another key.
bool read_cubin(const std::string& folder, const CubinKey& key, std::vector<char>& cubin);

/// Publishes an entry, making the folder where it is missing. On failure nothing is left behind.
Status write_cubin(const std::string& folder, const CubinKey& key, const std::vector<char>& cubin);

/// Where this process keeps what it compiles: ONCHIP_CACHE (empty: nowhere), else $XDG_CACHE_HOME/onchip or
/// ~/.cache/onchip; empty when none of them is set.
std::string cache_folder();

/// ONCHIP_KERNELS: a folder of kernels compiled ahead of time, only read; empty when not set.
std::string prepared_folder();

}  // namespace onchip::cuda
