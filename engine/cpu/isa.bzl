"""cpu_kernels: one source of kernels, compiled once per instruction-set level."""

_LEVELS = {
    "v2": "x86-64-v2",
    "v3": "x86-64-v3",
    "v4": "x86-64-v4",
}

def cpu_kernels(name, srcs, hdrs = [], deps = [], visibility = None):
    """Compiles `srcs` for x86-64-v2, v3 and v4, with PANDO_ISA naming the namespace.

    The sources may include only headers whose functions are templates on, or lie in, PANDO_ISA, or
    are trivially inlined: an inline function compiled for v4 must not become the one that the
    linker keeps for everybody. tests/engine/isa_symbols_test checks this on the objects.
    """
    for level, march in _LEVELS.items():
        native.cc_library(
            name = name + "_" + level,
            srcs = srcs,
            hdrs = hdrs,
            copts = [
                "-march=" + march,
                "-DPANDO_ISA=isa_" + level,
                "-O3",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-mprefer-vector-width=512",
            ],
            deps = deps,
            visibility = visibility,
        )
    native.cc_library(
        name = name,
        hdrs = hdrs,
        deps = deps + [":%s_%s" % (name, level) for level in _LEVELS],
        visibility = visibility,
    )
