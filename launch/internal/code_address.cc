#include "sinew/launch/internal/code_address.h"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace sinew::internal {
namespace {

using Module = dl_phdr_info;

/// Calls `visit` for each loaded module until it returns true.
void each_module(const std::function<bool(const Module&)>& visit) {
  ::dl_iterate_phdr(
      [](Module* module, std::size_t, void* visitor) {
        return (*static_cast<const std::function<bool(const Module&)>*>(visitor))(*module) ? 1 : 0;
      },
      const_cast<std::function<bool(const Module&)>*>(&visit));
}

bool has_code(const Module& module, std::uintptr_t offset) {
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module.dlpi_phdr[i];
    const bool is_code = segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0;
    if (is_code && offset >= segment.p_vaddr && offset - segment.p_vaddr < segment.p_memsz) {
      return true;
    }
  }
  return false;
}

/// The text of the note that linkers write with --build-id; empty if there is none.
std::string build_id(const Module& module) {
  constexpr std::string_view kOwner("GNU\0", 4);
  const auto rounded = [](std::size_t size) { return (size + 3) / 4 * 4; };
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    std::string_view notes(reinterpret_cast<const char*>(module.dlpi_addr + segment.p_vaddr),
                           segment.p_memsz);
    ElfW(Nhdr) note;
    while (notes.size() >= sizeof note) {
      std::memcpy(&note, notes.data(), sizeof note);
      notes.remove_prefix(sizeof note);
      const std::size_t size = rounded(note.n_namesz) + rounded(note.n_descsz);
      if (size > notes.size()) break;
      const std::string_view text = notes.substr(rounded(note.n_namesz), note.n_descsz);
      if (note.n_type == NT_GNU_BUILD_ID && notes.substr(0, note.n_namesz) == kOwner) {
        return std::string(text);
      }
      notes.remove_prefix(size);
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<CodeAddress> locate_code(std::uintptr_t address) {
  std::optional<CodeAddress> found;
  each_module([&](const Module& module) {
    const std::uintptr_t offset = address - module.dlpi_addr;
    if (address < module.dlpi_addr || !has_code(module, offset)) return false;
    found = CodeAddress{module.dlpi_name, offset, build_id(module)};
    return true;
  });
  if (found) return *std::move(found);
  return absl::InvalidArgumentError(
      "the function to run is not one of the program or its libraries");
}

absl::StatusOr<std::uintptr_t> resolve_code(const CodeAddress& code) {
  const std::string name =
      code.module.empty() ? std::string("the program") : absl::StrCat("the library ", code.module);
  absl::StatusOr<std::uintptr_t> result = absl::FailedPreconditionError(absl::StrCat(
      name, ", which has the function to run, is not loaded when main() begins: link it"));
  each_module([&](const Module& module) {
    if (code.module != module.dlpi_name) return false;
    if (code.build_id != build_id(module) || !has_code(module, code.offset)) {
      result = absl::FailedPreconditionError(
          absl::StrCat(name, " is not the one that the parent runs: it was built anew meanwhile"));
    } else {
      result = module.dlpi_addr + code.offset;
    }
    return true;
  });
  return result;
}

}  // namespace sinew::internal
