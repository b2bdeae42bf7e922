"""Links that are bad: each a UDP relay on loopback that delays, loses and goes dark for a while. No privilege is needed."""

import asyncio
import random
import threading


class Link:
    """Carries datagrams between whoever sends to `port` and `target`, both ways alike."""

    def __init__(self, target, delay, loss, dark, seed):
        self.target, self.delay, self.loss, self.dark = target, delay, loss, dark
        self.random = random.Random(seed)
        self.begun = None
        self.carried = self.lost = 0
        self.port = None

    def is_dark(self, now):
        return self.begun is not None and any(a <= now - self.begun < b for a, b in self.dark)

    def passes(self, now):
        if self.is_dark(now) or self.random.random() < self.loss:
            self.lost += 1
            return False
        self.carried += 1
        return True


class Front(asyncio.DatagramProtocol):
    """Where senders come in; each has a socket of its own towards the target."""

    def __init__(self, link, relay):
        self.link, self.relay, self.backs = link, relay, {}

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, peer):
        if not self.link.passes(self.relay.loop.time()):
            return
        back = self.backs.get(peer)
        if back is None:
            back = self.backs[peer] = Back(self, peer)
            self.relay.loop.create_task(back.open())
        self.relay.later(self.link.delay, lambda: back.send(data))


class Back(asyncio.DatagramProtocol):
    def __init__(self, front, peer):
        self.front, self.peer, self.transport = front, peer, None

    async def open(self):
        await self.front.relay.loop.create_datagram_endpoint(lambda: self, remote_addr=self.front.link.target)

    def connection_made(self, transport):
        self.transport = transport

    def send(self, data):
        if self.transport:
            self.transport.sendto(data)

    def datagram_received(self, data, _):
        front = self.front
        if front.link.passes(front.relay.loop.time()):
            front.relay.later(front.link.delay, lambda: front.transport.sendto(data, self.peer))

    def error_received(self, _):
        """Nobody listens there (yet)."""


class Relay:
    """Runs links in a thread of its own until it is closed."""

    def __init__(self, links):
        self.links, self.loop = links, asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        self.ready.wait()

    def run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self.open())
        self.ready.set()
        self.loop.run_forever()

    async def open(self):
        for link in self.links:
            transport, _ = await self.loop.create_datagram_endpoint(lambda: Front(link, self), local_addr=("127.0.0.1", 0))
            link.port = transport.get_extra_info("sockname")[1]

    def later(self, delay, what):
        self.loop.call_later(delay, what)

    def begin(self):
        """From now on links go dark when they are to."""
        for link in self.links:
            link.begun = self.loop.time()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
