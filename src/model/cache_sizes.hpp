// The caches that one core sees.
#pragma once

#include <cstdint>

namespace onchip::model {

struct CacheSizes {
  std::int64_t l1_bytes = 32 << 10;   ///< data
  std::int64_t l2_bytes = 512 << 10;  ///< of one core, or the core's share
  std::int64_t l3_bytes = 8 << 20;    ///< the whole cache that the core can fill; 0: there is none
  std::int64_t line_bytes = 64;
};

}  // namespace onchip::model
