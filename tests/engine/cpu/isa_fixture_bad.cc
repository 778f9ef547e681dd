// What check_isa_symbols.py has to refuse: an inline function outside pando::PANDO_ISA.
namespace pando {

__attribute__((noinline)) inline float EscapedFromItsLevel(float x) { return x * x + 1.0f; }

namespace PANDO_ISA {

float Kernel(float x) { return EscapedFromItsLevel(x); }

}  // namespace PANDO_ISA
}  // namespace pando
