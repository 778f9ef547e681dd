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
    linker keeps for everybody. So every call makes a test NAME_symbols_test, which looks at the
    symbols of the objects (check_isa_symbols.py).
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
                # `#pragma omp simd reduction` is how a kernel allows a sum to be vectorised. Peeling
                # for alignment would make its order depend on the address.
                "-fopenmp-simd",
                "--param=vect-max-peeling-for-alignment=0",
                "-mprefer-vector-width=512",
            ],
            deps = deps,
            # Only the archive: it is what the test looks at.
            linkstatic = True,
            visibility = visibility,
        )
        # Among a test's data, a cc_library's archive is left out; a filegroup's files are not.
        native.filegroup(
            name = "%s_%s_archive" % (name, level),
            srcs = [":%s_%s" % (name, level)],
            visibility = ["//visibility:private"],
        )
    archives = {level: ":%s_%s_archive" % (name, level) for level in _LEVELS}
    native.sh_test(
        name = name + "_symbols_test",
        size = "small",
        # Label(): of Pando, also where another workspace has kernels of its own.
        srcs = [Label("//engine/cpu:check_isa_symbols.py")],
        args = ["%s $(locations %s)" % item for item in archives.items()],
        data = archives.values(),
    )
    native.cc_library(
        name = name,
        hdrs = hdrs,
        deps = deps + [":%s_%s" % (name, level) for level in _LEVELS],
        visibility = visibility,
    )
