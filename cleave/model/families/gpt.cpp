#include <torch/autograd.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "cleave/error.h"
#include "cleave/model/families/families.h"
#include "cleave/model/join.h"
#include "cleave/model/kernels/attention.h"
#include "cleave/model/kernels/gelu.h"
#include "cleave/model/kernels/numbers.h"

namespace cleave {
namespace {

constexpr double kInitialSpread = 0.02;  // of GPT-2's weights

torch::nn::Linear make_linear(std::int64_t in, std::int64_t out, bool bias) {
  torch::nn::Linear linear(torch::nn::LinearOptions(in, out).bias(bias));
  torch::nn::init::normal_(linear->weight, 0, kInitialSpread);
  if (bias) {
    torch::nn::init::zeros_(linear->bias);
  }
  return linear;
}

// With the bias in the same operation; torch::nn::Linear's own forward adds it
// in another pass over the result.
at::Tensor through(const torch::nn::Linear& linear, const at::Tensor& x) {
  return torch::linear(x, linear->weight, linear->bias);
}

torch::nn::LayerNorm make_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

// Token numbers [n, length] to vectors [n, length, width].
struct EmbeddingImpl : torch::nn::Module {
  EmbeddingImpl(std::int64_t vocabulary,
                std::int64_t context,
                std::int64_t width)
      : weight(register_parameter("weight", torch::empty({vocabulary, width}))),
        position(
            register_parameter("position", torch::empty({context, width}))) {
    torch::nn::init::normal_(weight, 0, kInitialSpread);
    torch::nn::init::normal_(position, 0, kInitialSpread);
  }

  at::Tensor forward(const at::Tensor& tokens) {
    const std::int64_t length = tokens.size(1);
    TORCH_CHECK(length <= position.size(0),
                "a sequence of ",
                length,
                " tokens is longer than the context of ",
                position.size(0));
    // Both as rows of tables, whose gradients can wait for W.
    return torch::embedding(weight, tokens) +
           torch::embedding(position, torch::arange(length));
  }

  at::Tensor weight;
  at::Tensor position;
};

// Normalises, and lets every position look at those before it. The residual
// is a layer of its own.
struct AttentionImpl : torch::nn::Module {
  AttentionImpl(std::int64_t width, std::int64_t heads, double dropout)
      : heads_(heads),
        dropout_(dropout),
        norm_(register_module("norm", make_norm(width))),
        qkv_(register_module("qkv", make_linear(width, 3 * width, true))),
        out_(register_module("out", make_linear(width, width, true))) {}

  at::Tensor forward(const at::Tensor& x) {
    const std::int64_t n = x.size(0);
    const std::int64_t length = x.size(1);
    const std::int64_t width = x.size(2);
    const at::Tensor qkv = through(qkv_, norm_(x));
    return torch::dropout(through(out_, attended(qkv).view({n, length, width})),
                          dropout_,
                          is_training());
  }

 private:
  // torch's own attention also drops out.
  at::Tensor attended(const at::Tensor& qkv) const {
    if (!has_number_type(qkv) || (is_training() && dropout_ > 0)) {
      const std::int64_t d = qkv.size(2) / (3 * heads_);
      const at::Tensor parts =
          qkv.view({qkv.size(0), qkv.size(1), 3, heads_, d})
              .permute({2, 0, 3, 1, 4});
      return at::scaled_dot_product_attention(parts[0],
                                              parts[1],
                                              parts[2],
                                              {},
                                              is_training() ? dropout_ : 0.0,
                                              true)
          .transpose(1, 2)
          .contiguous();
    }
    return causal_attention(qkv, heads_);
  }

  std::int64_t heads_;
  double dropout_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear qkv_;
  torch::nn::Linear out_;
};

// Normalises, widens four times, GELU, narrows again.
struct FeedForwardImpl : torch::nn::Module {
  FeedForwardImpl(std::int64_t width, double dropout)
      : dropout_(dropout),
        norm_(register_module("norm", make_norm(width))),
        up_(register_module("up", make_linear(width, 4 * width, true))),
        down_(register_module("down", make_linear(4 * width, width, true))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor wide = tanh_gelu(through(up_, norm_(x)));
    return torch::dropout(through(down_, wide), dropout_, is_training());
  }

 private:
  double dropout_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear up_;
  torch::nn::Linear down_;
};

struct ResidualImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& branch, const at::Tensor& stream) {
    return stream + branch;
  }
};

// Vectors to a score for every token.
struct HeadImpl : torch::nn::Module {
  HeadImpl(std::int64_t width, std::int64_t vocabulary)
      : weight(register_parameter("weight", torch::empty({vocabulary, width}))),
        norm_(register_module("norm", make_norm(width))) {
    torch::nn::init::normal_(weight, 0, kInitialSpread);
  }

  at::Tensor forward(const at::Tensor& x) {
    return torch::linear(norm_(x), weight);
  }

  at::Tensor weight;

 private:
  torch::nn::LayerNorm norm_;
};

// Scores for some of the tokens, from vectors that are normalised already.
struct HeadPartImpl : torch::nn::Module {
  HeadPartImpl(std::int64_t width, std::int64_t tokens)
      : weight(register_parameter("weight", torch::empty({tokens, width}))) {
    torch::nn::init::normal_(weight, 0, kInitialSpread);
  }

  at::Tensor forward(const at::Tensor& x) { return torch::linear(x, weight); }

  at::Tensor weight;
};

// As even as may be; whole runs of scores where there are enough, so that the
// loss need not join the parts (cross_entropy.h).
std::int64_t size_of_part(std::int64_t part,
                          std::int64_t parts,
                          std::int64_t tokens) {
  constexpr std::int64_t kRun = 16;
  const std::int64_t run = tokens >= kRun * parts ? kRun : 1;
  const std::int64_t runs = tokens / run;
  const std::int64_t own = runs / parts + (part < runs % parts ? 1 : 0);
  return run * own + (part + 1 == parts ? tokens % run : 0);
}

// The head as layers that each score some of the tokens.
void add_head_parts(Model& model,
                    std::int64_t width,
                    std::int64_t tokens,
                    std::int64_t parts) {
  model.add<torch::nn::LayerNorm>("head.norm", std::vector{width});
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < parts; ++i) {
    names.push_back("head.part." + std::to_string(i));
    model.add<HeadPartImpl>(names.back(), width, size_of_part(i, parts, tokens))
        .reads({"head.norm"});
  }
  model.add("head.join", make_join).reads(names);
}

// Attention and feed-forward, each beside a way around it. Reads `stream`, and
// returns the name of what it makes of it.
std::string add_block(Model& model,
                      const std::string& block,
                      const std::string& stream,
                      const FamilyOptions& sizes) {
  model
      .add<AttentionImpl>(
          block + "attention", sizes.width, sizes.heads, sizes.dropout)
      .reads({stream});
  model.add<ResidualImpl>(block + "attention_sum")
      .reads({block + "attention", stream});
  model.add<FeedForwardImpl>(block + "mlp", sizes.width, sizes.dropout);
  model.add<ResidualImpl>(block + "mlp_sum")
      .reads({block + "mlp", block + "attention_sum"});
  return block + "mlp_sum";
}

void add_head(Model& model, const FamilyOptions& sizes) {
  if (sizes.head_parts > 1) {
    add_head_parts(model, sizes.width, sizes.vocabulary, sizes.head_parts);
    return;
  }
  LayerSpec& head = model.add<HeadImpl>("head", sizes.width, sizes.vocabulary);
  if (sizes.tied) {
    head.shares("weight", "embedding.weight");
  }
}

// With the defaults of what is not given.
FamilyOptions sizes_of(FamilyOptions options) {
  const auto or_else = [](std::int64_t& size, std::int64_t fallback) {
    size = size > 0 ? size : fallback;
  };
  or_else(options.width, 128);
  or_else(options.depth, 4);
  or_else(options.heads, 4);
  or_else(options.context, 128);
  or_else(options.vocabulary, 256);
  return options;
}

void check_sizes(const FamilyOptions& sizes) {
  if (sizes.width % sizes.heads != 0) {
    fail("a width of " + std::to_string(sizes.width) +
             " does not divide into " + std::to_string(sizes.heads) + " heads",
         "Choose model.width as a multiple of model.heads.");
  }
  const bool too_many = sizes.head_parts > sizes.vocabulary;
  if (sizes.head_parts > 1 && (sizes.tied || too_many)) {
    fail("a head of " + std::to_string(sizes.head_parts) +
             " parts is not possible " +
             (sizes.tied ? "while it shares the embedding's weight"
                         : "for fewer tokens than that"),
         sizes.tied ? "Set model.tied to false."
                    : "Choose a smaller model.head_parts.");
  }
}

}  // namespace

Model gpt(const FamilyOptions& options) {
  const FamilyOptions sizes = sizes_of(options);
  check_sizes(sizes);
  Model model("gpt", sizes.seed);
  model.add<EmbeddingImpl>(
      "embedding", sizes.vocabulary, sizes.context, sizes.width);
  std::string stream = "embedding";
  for (std::int64_t i = 0; i < sizes.depth; ++i) {
    stream =
        add_block(model, "block." + std::to_string(i) + ".", stream, sizes);
  }
  add_head(model, sizes);
  return model;
}

}  // namespace cleave
