#pragma once

// For the sources of kernels.h only.

// Compiled for AVX-512, for AVX2 and for any processor.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLEAVE_CLONES \
  [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define CLEAVE_CLONES
#endif
// Into every one of them.
#define CLEAVE_INLINE [[gnu::always_inline]] inline
