"""pando_deps: every repository that Pando's targets name, all of them found on this machine.

A workspace outside the tree uses Pando so (tests/external_workspace is one):

    local_repository(name = "pando", path = "...")

    load("@pando//third_party:deps.bzl", "pando_deps")

    pando_deps()

and builds with -std=c++20. What it has declared before the call under one of these names is kept.
"""

load("//third_party/bazel:stubs.bzl", "stub_repository", "system_sources_repository")
load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")
load("//third_party/system:absl.bzl", "absl_repository")

_PUBLIC = "package(default_visibility = [\"//visibility:public\"])\n"

def _unless_declared(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)

def pando_deps():
    """Declares Abseil, GoogleTest, CUDA (or its stub) and stand-ins for what Bazel itself loads."""

    # Label(), not a string: it means a file of Pando in whichever workspace this macro is called.
    _unless_declared(
        stub_repository,
        "rules_cc",
        files = {Label("//third_party/bazel:rules_cc.bzl"): "cc/defs.bzl"},
        packages = {"cc": ""},
    )
    _unless_declared(
        stub_repository,
        "rules_java",
        files = {Label("//third_party/bazel:rules_java.bzl"): "java/defs.bzl"},
        packages = {"java": ""},
    )
    _unless_declared(
        stub_repository,
        "remote_coverage_tools",
        files = {Label("//third_party/bazel:lcov_merger.py"): "lcov_merger.py"},
        packages = {"": _PUBLIC + "\n".join([
            "sh_binary(name = %r, srcs = [\"lcov_merger.py\"])" % name
            for name in ["lcov_merger", "coverage_report_generator"]
        ])},
    )
    _unless_declared(absl_repository, "com_google_absl")
    _unless_declared(
        system_sources_repository,
        "com_google_googletest",
        path = "/usr/src/googletest",
        debian_package = "googletest",
        build_file = Label("//third_party/system:gtest.BUILD"),
    )
    _unless_declared(cuda_configure, "local_config_cuda")
