"""Two hosts and two links between them, in namespaces of their own.

The sender's host is the namespace that this runs in, the receiver's is called `srv`. Its address is behind both links. The second link leads through
a NAT (a relay of ours), whose bindings can be made to change.
"""

import os
import selectors
import socket
import subprocess
import threading
import time

SERVER = "10.9.0.1"
PORT = 4433
NAT_PORT = 4434


def ip(command, check=True):
    run = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
    if check and run.returncode:
        raise RuntimeError(f"ip {command}: {run.stderr.strip()}")


def tc(command, check=True):
    run = subprocess.run(["tc", *command.split()], capture_output=True, text=True)
    if check and run.returncode:
        raise RuntimeError(f"tc {command}: {run.stderr.strip()}")


class Link:
    """The link `wN`: 10.N.0.1 here, 10.N.0.2 at the receiver's."""

    def __init__(self, n):
        self.n, self.name, self.host = n, f"w{n}", 1

    def plug(self):
        name, n = self.name, self.n
        ip(f"link add {name} type veth peer name {name} netns srv")
        ip(f"-n srv address add 10.{n}.0.2/24 dev {name}")
        ip(f"-n srv link set {name} up")
        ip(f"address add 10.{n}.0.{self.host}/24 dev {name}")
        self.up()

    def unplug(self):
        ip(f"link delete {self.name}")

    def down(self):
        ip(f"link set {self.name} down")

    def up(self):
        ip(f"link set {self.name} up")
        self.route()

    def route(self):
        ip(f"route replace {SERVER} via 10.{self.n}.0.2 dev {self.name} metric {self.n}")

    def no_route(self):
        ip(f"route delete {SERVER} dev {self.name}")
        ip(f"route delete 10.{self.n}.0.0/24 dev {self.name}")

    def route_again(self):
        ip(f"route add 10.{self.n}.0.0/24 dev {self.name} src 10.{self.n}.0.{self.host}")
        self.route()

    def another_address(self):
        old, self.host = self.host, self.host + 10
        ip(f"address delete 10.{self.n}.0.{old}/24 dev {self.name}")
        ip(f"address add 10.{self.n}.0.{self.host}/24 dev {self.name}")
        self.route()

    # A queue that holds nothing lets nothing pass. (No firewall is needed for that, and no netem.)
    def deaf(self, there):
        tc(f"{'-n srv ' if there else ''}qdisc replace dev {self.name} root pfifo limit 0")

    def hearing(self, there):
        tc(f"{'-n srv ' if there else ''}qdisc delete dev {self.name} root")


def two_hosts():
    """Makes them; the two links."""
    # Where `ip` keeps the names of namespaces, and where all that is written here goes: none of it is seen outside, or outlives this namespace.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    os.makedirs("/run/chaos")
    ip("link set lo up")
    ip("netns add srv")
    ip("-n srv link set lo up")
    ip(f"-n srv address add {SERVER}/32 dev lo")
    # Linux says "port unreachable" to the same peer once a second, after a first six. Those that are told here to end come faster than that.
    with open("/proc/sys/net/ipv4/icmp_ratelimit", "w") as limit:
        limit.write("0")
    subprocess.run(["ip", "netns", "exec", "srv", "sh", "-c", "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit"], check=True)
    links = [Link(1), Link(2)]
    for link in links:
        link.plug()
    return links


class Nat:
    """A NAT in front of the receiver, in its namespace: each sender's address has a binding, a port of its own towards the receiver."""

    def __init__(self):
        self.lock, self.bindings = threading.Lock(), {}
        self.rebound = threading.Event()
        self.ended = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        # Only this thread is in the receiver's namespace.
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        with open("/run/netns/srv") as namespace:
            if libc.setns(namespace.fileno(), 0x40000000):
                raise OSError(ctypes.get_errno(), "setns")
        inner = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        inner.bind(("0.0.0.0", NAT_PORT))
        inner.setblocking(False)
        selector = selectors.DefaultSelector()
        selector.register(inner, selectors.EVENT_READ)
        outer, clients = {}, {}
        while not self.ended:
            if self.rebound.is_set():
                self.rebound.clear()
                for bound in outer.values():
                    selector.unregister(bound)
                    bound.close()
                outer, clients = {}, {}
            for key, _ in selector.select(0.05):
                for _ in range(64):
                    try:
                        data, client = key.fileobj.recvfrom(65536)
                    except OSError:
                        break
                    try:
                        if key.fileobj is not inner:
                            inner.sendto(data, clients[key.fileobj])
                            continue
                        if client not in outer:
                            bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                            bound.setblocking(False)
                            bound.connect((SERVER, PORT))
                            outer[client], clients[bound] = bound, client
                            selector.register(bound, selectors.EVENT_READ)
                        outer[client].send(data)
                    except OSError:
                        pass

    def rebind(self):
        self.rebound.set()
        while self.rebound.is_set():
            time.sleep(0.005)
