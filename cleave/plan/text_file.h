#pragma once

#include <filesystem>
#include <string>

namespace cleave {

// The whole file. Throws Error that names it where it cannot be read.
std::string read_text(const std::filesystem::path& file);

// Replaces the file as a whole: whoever reads it sees the old text or the new
// one, also after a crash. Writes FILE.tmp first. Throws Error that names the
// file where it cannot be written.
void write_text(const std::filesystem::path& file, const std::string& text);

}  // namespace cleave
