"""Nodes with links between them that a test can cut or slow down: network namespaces of Linux around
one bridge. Needs the rights to make them, and iproute2."""

import shutil
import subprocess


def missing():
    """Why there can be no Network here; None if there can."""
    for program in ("ip", "unshare", "nsenter"):
        if shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
            return "there is no program " + program
    tried = subprocess.run(["unshare", "-n", "ip", "link", "add", "name", "a", "type", "veth", "peer",
                            "name", "b"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "network namespaces can't be made here"


class Network:
    """Node i has the address 10.77.0.(i + 1), on a device called eth."""

    def __init__(self, nodes):
        self.holders = []
        self.switch = self.new_namespace()
        self.ip(self.switch, "link add name bridge type bridge")
        self.ip(self.switch, "link set bridge up")
        self.nodes = [self.new_namespace() for _ in range(nodes)]
        for i, node in enumerate(self.nodes):
            self.ip(self.switch, "link add name port%d type veth peer name eth netns %d" % (i, node))
            self.ip(self.switch, "link set port%d master bridge" % i)
            self.ip(self.switch, "link set port%d up" % i)
            self.ip(node, "link set lo up")
            self.ip(node, "address add 10.77.0.%d/24 dev eth" % (i + 1))
            self.ip(node, "link set eth up")

    def new_namespace(self):
        """The id of a process that lives in it, as long as the network does."""
        holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo here; exec sleep 100000"],
                                  stdout=subprocess.PIPE)
        self.holders.append(holder)
        holder.stdout.readline()
        return holder.pid

    @staticmethod
    def within(namespace):
        """What to put before a command."""
        return ["nsenter", "-t", str(namespace), "-n"]

    def ip(self, namespace, command, program="ip"):
        subprocess.run([*self.within(namespace), program, *command.split()], check=True)

    def address(self, node):
        return "10.77.0.%d" % (node + 1)

    def cut(self, node):
        self.ip(self.switch, "link set port%d down" % node)

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()
