// Holds the precompiled torch header; see cleave_torch_header.
