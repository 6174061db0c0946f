#pragma once

#include <filesystem>

namespace ps_rnn {

/// A text for who has none: the King James Bible of Debian's package bible-kjv-text, as the program
/// of bible-kjv prints it, in `folder`/bible.txt. Makes the file unless it is there; several
/// processes may do so at once. Throws std::runtime_error that says what to install, or what cannot
/// be written.
std::filesystem::path bible_text(const std::filesystem::path& folder);

}  // namespace ps_rnn
