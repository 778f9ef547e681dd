#include "tests/emulated_cuda/symbol.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

namespace emulated_cuda {
namespace {

/// The name in the full symbol table of `file`, which unlike the dynamic one has functions of
/// anonymous namespaces.
std::string NameInFile(const char* file, uintptr_t address, uintptr_t loaded_at) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header)) return "";
  std::memcpy(&header, bytes.data(), sizeof(header));
  const uintptr_t value = header.e_type == ET_EXEC ? address : address - loaded_at;
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header.e_shoff);
  for (unsigned s = 0; s < header.e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const char* names = bytes.data() + sections[sections[s].sh_link].sh_offset;
    const auto* symbol = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[s].sh_offset);
    for (size_t n = sections[s].sh_size / sizeof(*symbol); n > 0; --n, ++symbol) {
      if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_value == value) {
        return names + symbol->st_name;
      }
    }
  }
  return "";
}

}  // namespace

std::string FunctionName(const void* address) {
  Dl_info info;
  std::string name;
  if (dladdr(address, &info) != 0) {
    name = NameInFile(info.dli_fname, reinterpret_cast<uintptr_t>(address),
                      reinterpret_cast<uintptr_t>(info.dli_fbase));
  }
  if (name.empty()) {
    char text[32];
    std::snprintf(text, sizeof(text), "%p", address);
    return text;
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? readable.get() : name;
}

}  // namespace emulated_cuda
