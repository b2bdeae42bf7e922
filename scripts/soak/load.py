"""Programs that speak through a gateway for hours: steady streams that are answered, and flows and connections that come and go."""

import os
import random
import socket
import struct
import threading
import time

# Bytes of a steady datagram, and of a piece that is written to a steady connection at once.
DATAGRAM, PIECE = 1200, 16 << 10
# A connection that has heard nothing for so long, seconds, is given up: both links were dark.
PATIENCE = 30


def held(process):
    """Resident memory in MiB, descriptors, threads."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        said = dict(line.split(":", 1) for line in status if ":" in line)
    return {"mib": round(int(said["VmRSS"].split()[0]) / 1024, 2), "descriptors": len(os.listdir(f"/proc/{process.pid}/fd")), "threads": int(said["Threads"])}


class Load:
    """Four kinds of programs, on two sides on which `within(side, make)` makes sockets (namespaces, say); what is sent is sent back."""

    def __init__(self, within, near, far, udp, tcp, listen, rate):
        """Programs in `near` speak to the addresses `udp` and `tcp`; those in `far` listen at `listen` (host, port of UDP, port of TCP). `rate`: bytes per second of each steady stream."""
        self.within, self.near, self.udp, self.tcp, self.rate = within, near, udp, tcp, rate
        self.stop, self.lock = threading.Event(), threading.Lock()
        self.counted = dict.fromkeys(("datagrams", "answered", "stream_bytes", "streams", "flows", "connections", "whole"), 0)
        host, udp_port, tcp_port = listen
        self.echo = within(far, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.echo.bind((host, udp_port))
        self.echo.settimeout(0.5)
        self.listener = within(far, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host, tcp_port))
        self.listener.listen(64)
        self.listener.settimeout(0.5)
        works = (self.echo_datagrams, self.accept, self.stream_datagrams, self.stream_bytes, self.come_and_go, self.connect)
        self.threads = [threading.Thread(target=work, daemon=True) for work in works]

    def start(self):
        for thread in self.threads:
            thread.start()

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def count(self, what, by=1):
        with self.lock:
            self.counted[what] += by

    def socket(self, kind):
        made = self.within(self.near, lambda: socket.socket(socket.AF_INET, kind))
        made.settimeout(PATIENCE)
        return made

    def echo_datagrams(self):
        while not self.stop.is_set():
            try:
                data, peer = self.echo.recvfrom(65536)
                self.echo.sendto(data, peer)
            except OSError:
                pass

    def accept(self):
        while not self.stop.is_set():
            try:
                stream, _ = self.listener.accept()
            except OSError:
                continue
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    @staticmethod
    def serve(stream):
        with stream:
            try:
                stream.settimeout(PATIENCE)
                while data := stream.recv(65536):
                    stream.sendall(data)
            except OSError:
                pass

    def paced(self, size):
        """Says when the next piece of so many bytes is due; what is behind by more than a second is let go."""
        due = time.monotonic()
        while not self.stop.is_set():
            due = max(due + size / self.rate, time.monotonic() - 1)
            time.sleep(max(0, due - time.monotonic()))
            yield

    def stream_datagrams(self):
        with self.socket(socket.SOCK_DGRAM) as one:
            one.setblocking(False)
            for _ in self.paced(DATAGRAM):
                try:
                    one.sendto(bytes(DATAGRAM), self.udp)
                    self.count("datagrams")
                    while one.recv(65536):
                        self.count("answered")
                except OSError:
                    pass

    def stream_bytes(self):
        """A connection for as long as it lives, and then another."""
        while not self.stop.is_set():
            with self.socket(socket.SOCK_STREAM) as stream:
                try:
                    stream.connect(self.tcp)
                    self.count("streams")
                    reader = threading.Thread(target=self.drain, args=(stream,), daemon=True)
                    reader.start()
                    for _ in self.paced(PIECE):
                        stream.sendall(bytes(PIECE))
                except OSError:
                    time.sleep(0.5)

    def drain(self, stream):
        try:
            while data := stream.recv(65536):
                self.count("stream_bytes", len(data))
        except OSError:
            pass

    def come_and_go(self):
        """Ten programs at a time, each of which says ten things of any size in 4 s and goes."""
        draw = random.Random(1)
        while not self.stop.is_set():
            some = [self.socket(socket.SOCK_DGRAM) for _ in range(10)]
            for _ in range(10):
                for one in some:
                    try:
                        one.sendto(bytes(draw.randrange(0, 1400)), self.udp)
                    except OSError:
                        pass
                time.sleep(0.4)
            for one in some:
                one.close()
            self.count("flows", len(some))

    def connect(self):
        """A connection of 100 kB each half second; one in five is broken off."""
        draw = random.Random(2)
        while not self.stop.is_set():
            data, came, broken = os.urandom(100_000), b"", draw.random() < 0.2
            with self.socket(socket.SOCK_STREAM) as stream:
                try:
                    stream.settimeout(PATIENCE / 3)
                    stream.connect(self.tcp)
                    if broken:
                        stream.sendall(data[:20_000])
                        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    else:
                        self.count("connections")
                        writer = threading.Thread(target=self.write, args=(stream, data), daemon=True)
                        writer.start()
                        while part := stream.recv(65536):
                            came += part
                        writer.join()
                        self.count("whole", came == data)
                except OSError:
                    pass
            time.sleep(0.5)

    @staticmethod
    def write(stream, data):
        try:
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass
