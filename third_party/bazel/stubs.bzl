"""Repositories that Bazel 4.2.3's own tools load and would otherwise download."""

def _stub_repository_impl(ctx):
    for source, target in ctx.attr.files.items():
        ctx.symlink(source, target)
    for package, build in ctx.attr.packages.items():
        ctx.file(package + ("/" if package else "") + "BUILD.bazel", build)

# Files of this workspace under the paths that a well-known repository has them at. They are named
# by Label, not by path as local_repository would, so that this also works from a workspace that has
# Pando as one of its repositories.
stub_repository = repository_rule(
    implementation = _stub_repository_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(
            doc = "file of Pando -> its path in the repository",
            allow_files = True,
        ),
        "packages": attr.string_dict(doc = "package -> text of its BUILD.bazel"),
    },
    local = True,
)

def _system_sources_repository_impl(ctx):
    source = ctx.path(ctx.attr.path)
    if not source.exists:
        fail("%s is not installed: apt-get install %s (tools/run does it)" % (
            ctx.attr.path,
            ctx.attr.debian_package,
        ))
    for entry in source.readdir():
        ctx.symlink(entry, entry.basename)
    ctx.delete("BUILD.bazel")
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

# The sources that a Debian package leaves under /usr/src, with a BUILD file of ours.
system_sources_repository = repository_rule(
    implementation = _system_sources_repository_impl,
    attrs = {
        "path": attr.string(mandatory = True),
        "debian_package": attr.string(mandatory = True),
        "build_file": attr.label(mandatory = True, allow_single_file = True),
    },
    local = True,
    configure = True,
)
