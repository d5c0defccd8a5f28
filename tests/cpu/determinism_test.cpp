// Same inputs, same bits: whatever the number of threads, the run, and the neighbours in the batch.
#include "cpu/backend_test.hpp"
#include "random/generator.hpp"

namespace onchip::test {
namespace {

class Determinism : public BackendTest {
 protected:
  void expect_same_bits(Case& c, const std::string& label) {
    if (!has_backward()) c.dout = TensorBuffer();
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 7, 1, 7}) {
      c.options.num_threads = threads;
      ASSERT_EQ(run_passes(c, GetParam()), "") << label;
      const auto bytes = result_bytes(c);
      if (first.empty()) first = bytes;
      ASSERT_TRUE(bytes == first) << threads << " threads change the bits of " << label;
    }
  }
};

TEST_P(Determinism, OfAnyFeature) {
  const std::uint64_t seeds = GetParam() == Backend::cuda ? 10 : 60;  // on a GPU each compiles kernels
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Case c = draw_case(seed);
    if (!computes(c.q.view().dtype)) continue;
    expect_same_bits(c, "seed " + std::to_string(seed) + ": " + describe(c));
  }
}

/// Several tiles in each direction, more heads than threads and fewer, few queries over many keys.
TEST_P(Determinism, OfManyTiles) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{1, 700, 700, 1, 1, 64, 64}, Shape{2, 300, 500, 4, 2, 32, 48},
                               Shape{1, 1, 9000, 4, 1, 64, 64}, Shape{3, 5, 3000, 2, 2, 40, 40}}) {
      Case c = dense_case(type, shape, 3, true);
      c.options.causal = true;
      set_statistics(c);
      expect_same_bits(c, describe(c));
    }
}

/// Sequences of one packed batch, each also alone.
class BatchInvariance : public BackendTest {
 protected:
  struct Part {
    std::int64_t length_q, length_k;
  };

  /// The rows [begin, begin + length) of a packed tensor.
  static TensorBuffer rows_of(const TensorBuffer& packed, std::int64_t begin, std::int64_t length) {
    const Tensor t = packed.view();
    const std::int64_t row = t.shape[1] * t.shape[2];
    const std::vector<double> all = packed.values();
    TensorBuffer part(t.dtype, {length, t.shape[1], t.shape[2]});
    part.assign({all.begin() + begin * row, all.begin() + (begin + length) * row});
    return part;
  }
  static TensorBuffer lengths(const std::vector<std::int64_t>& of) {
    std::vector<double> sums{0};
    for (const std::int64_t length : of) sums.push_back(sums.back() + static_cast<double>(length));
    TensorBuffer buffer(DType::i32, {static_cast<std::int64_t>(sums.size())});
    buffer.assign(sums);
    return buffer;
  }
  static Case packed_case(DType type, const std::vector<Part>& parts, std::int64_t heads) {
    std::vector<std::int64_t> lengths_q, lengths_k;
    std::int64_t total_q = 0, total_k = 0;
    for (const Part& part : parts) {
      lengths_q.push_back(part.length_q), lengths_k.push_back(part.length_k);
      total_q += part.length_q, total_k += part.length_k;
    }
    Rng rng(17);
    Case c;
    c.q = TensorBuffer(type, {total_q, heads, 64});
    c.k = c.v = TensorBuffer(type, {total_k, 2, 64});
    for (TensorBuffer* t : {&c.q, &c.k, &c.v}) t->fill([&] { return rng.normal(); });
    c.cu_seqlens_q = lengths(lengths_q), c.cu_seqlens_k = lengths(lengths_k);
    c.options.causal = true;
    add_results(c, true);
    c.dout.fill([&] { return rng.normal(); });
    return c;
  }

  static bool accepts(const Implementation& implementation, const Case& c) {
    Problem problem;
    if (implementation.backend == Backend::cuda) return true;
    const Attention args = implementation.pass == Pass::forward ? c.forward_args() : c.backward_args();
    return make_problem(args, implementation.pass, Use::run, problem).ok() && !implementation.reject(problem);
  }
  static void run(const Implementation& implementation, Case& c) {
    if (implementation.backend == Backend::cuda) {
      c.dout = TensorBuffer();
      c.options.batch_invariant = true;
      ASSERT_EQ(run_passes(c, Backend::cuda), "");
      return;
    }
    const Outcome outcome = run_guarded(c, implementation.pass, [&](const Attention& args, Pass pass) {
      return run_implementation(implementation, args, pass);
    });
    ASSERT_EQ(outcome.error, "");
  }

  /// Returns how many sequences the implementation accepts alone.
  static int compare_with_each_alone(const Implementation& implementation, Case& all, const std::vector<Part>& parts) {
    run(implementation, all);
    std::int64_t begin_q = 0, begin_k = 0;
    int compared = 0;
    for (const Part& part : parts) {
      Case alone = packed_case(all.q.view().dtype, {part}, all.q.view().shape[1]);
      alone.q = rows_of(all.q, begin_q, part.length_q), alone.dout = rows_of(all.dout, begin_q, part.length_q);
      alone.k = rows_of(all.k, begin_k, part.length_k), alone.v = rows_of(all.v, begin_k, part.length_k);
      set_statistics(alone);
      if (accepts(implementation, alone)) {
        run(implementation, alone);
        const auto same = [&](const TensorBuffer& one, const TensorBuffer& of, std::int64_t begin,
                              std::int64_t length) { return one.values() == rows_of(of, begin, length).values(); };
        if (implementation.pass == Pass::forward) {
          EXPECT_TRUE(same(alone.o, all.o, begin_q, part.length_q)) << "o of " << part.length_q << " queries";
        } else {
          EXPECT_TRUE(same(alone.dk, all.dk, begin_k, part.length_k)) << "dk of " << part.length_q << " queries";
          EXPECT_TRUE(same(alone.dv, all.dv, begin_k, part.length_k)) << "dv of " << part.length_q << " queries";
        }
        ++compared;
      }
      begin_q += part.length_q, begin_k += part.length_k;
    }
    return compared;
  }
};

/// Each implementation by itself, outside of the mode: which one runs may then depend on the longest sequence of the
/// batch. dq is not held to it: it is a sum over splits of the keys, whose number follows from the whole batch.
TEST_P(BatchInvariance, ASequenceAloneHasTheSameBits) {
  const std::vector<std::vector<Part>> batches{{{3, 2500}, {130, 130}, {1, 700}, {300, 40}, {64, 400}},
                                               {{1, 5000}, {4, 64}, {2, 1300}}};
  for (const Implementation* implementation : implementations()) {
    if (implementation->backend != GetParam()) continue;
    int compared = 0;
    for (const std::vector<Part>& parts : batches)
      for (const DType type : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(std::string(implementation->name) + ", " + name(type));
        Case all = packed_case(type, parts, 6);
        set_statistics(all);
        if (accepts(*implementation, all)) compared += compare_with_each_alone(*implementation, all, parts);
      }
    EXPECT_GT(compared, 0) << implementation->name;
  }
}

class BatchInvariantMode : public BatchInvariance {
 protected:
  static std::vector<TensorBuffer*> by_query(Case& c) { return {&c.o, &c.dq}; }
  static std::vector<TensorBuffer*> by_key(Case& c) { return {&c.dk, &c.dv}; }

  /// A packed batch against each of its sequences, through the public interface: packed alone, and dense alone.
  void expect_each_alone(Case& all, const std::vector<Part>& parts) {
    all.options.batch_invariant = true;
    set_statistics(all);
    ASSERT_EQ(run_passes(all, GetParam()), "");
    std::int64_t begin_q = 0, begin_k = 0;
    for (const Part& part : parts) {
      SCOPED_TRACE(std::to_string(part.length_q) + " queries, " + std::to_string(part.length_k) + " keys");
      Case alone = packed_case(all.q.view().dtype, {part}, all.q.view().shape[1]);
      alone.options.batch_invariant = true;
      alone.q = rows_of(all.q, begin_q, part.length_q), alone.dout = rows_of(all.dout, begin_q, part.length_q);
      alone.k = rows_of(all.k, begin_k, part.length_k), alone.v = rows_of(all.v, begin_k, part.length_k);
      Case dense = dense_of(alone, part);
      for (Case* one : {&alone, &dense}) {
        set_statistics(*one);
        ASSERT_EQ(run_passes(*one, GetParam()), "");
        for (int n = 0; n < 2; ++n) {
          EXPECT_EQ(by_query(*one)[n]->values(), rows_of(*by_query(all)[n], begin_q, part.length_q).values()) << n;
          EXPECT_EQ(by_key(*one)[n]->values(), rows_of(*by_key(all)[n], begin_k, part.length_k).values()) << n;
        }
      }
      begin_q += part.length_q, begin_k += part.length_k;
    }
  }

  static Case dense_of(const Case& packed, const Part& part) {
    const Tensor q = packed.q.view();
    Case c = dense_case(q.dtype, {1, part.length_q, part.length_k, q.shape[1], 2, 64, 64}, 1, true);
    c.options = packed.options;
    c.q.assign(packed.q.values()), c.k.assign(packed.k.values()), c.v.assign(packed.v.values());
    c.dout.assign(packed.dout.values());
    return c;
  }
};

/// Longer and shorter neighbours, few rows and many, logits that want double in some sequences.
TEST_P(BatchInvariantMode, ASequenceAloneHasTheSameBits) {
  const std::vector<std::vector<Part>> batches{{{3, 1500}, {130, 130}, {1, 700}, {200, 40}},
                                               {{1, 2500}, {4, 64}},
                                               {{1, 90}, {170, 600}},
                                               {{100, 150}, {5, 0}, {0, 7}, {40, 40}}};
  for (std::size_t n = 0; n < batches.size(); ++n)
    for (const DType type : {DType::f32, DType::bf16})
      for (const bool large_logits : {false, true}) {
        const std::int64_t heads = n % 2 == 0 ? 2 : 6;
        SCOPED_TRACE(std::string(name(type)) + ", batch " + std::to_string(n));
        Case all = packed_case(type, batches[n], heads);
        if (large_logits) {
          std::vector<double> q = all.q.values();
          const auto end = static_cast<std::size_t>(batches[n][0].length_q * heads * 64);
          for (std::size_t at = 0; at < end; ++at) q[at] *= 6000;
          all.q.assign(q);
        }
        expect_each_alone(all, batches[n]);
      }
}

/// What sums over the batch may differ; what is a sequence's own may not.
TEST_P(BatchInvariantMode, SumsOverTheBatchChangeNothingElse) {
  const std::vector<Part> parts{{60, 90}, {200, 300}};
  for (const DType type : {DType::f32, DType::bf16}) {
    std::vector<Case> cases;
    for (const double factor : {1.0, 6000.0}) {
      Case c = packed_case(type, parts, 4);
      std::vector<double> q = c.q.values();
      for (std::size_t n = 0; n < 60 * 4 * 64; ++n) q[n] *= factor;
      c.q.assign(q);
      c.bias = TensorBuffer(DType::f32, {1, 1, 200, 300});
      Rng rng(5);
      c.bias.fill([&] { return rng.normal(); });
      c.dbias = c.bias;
      c.options.batch_invariant = true;
      set_statistics(c);
      ASSERT_EQ(run_passes(c, GetParam()), "");
      cases.push_back(std::move(c));
    }
    for (int n = 0; n < 2; ++n) {
      EXPECT_EQ(rows_of(*by_query(cases[0])[n], 60, 200).values(), rows_of(*by_query(cases[1])[n], 60, 200).values());
      EXPECT_EQ(rows_of(*by_key(cases[0])[n], 90, 300).values(), rows_of(*by_key(cases[1])[n], 90, 300).values());
    }
  }
}

ONCHIP_FOR_EACH_BACKEND(BatchInvariantMode);
ONCHIP_FOR_EACH_BACKEND(Determinism);
ONCHIP_FOR_EACH_BACKEND(BatchInvariance);

}  // namespace
}  // namespace onchip::test
