#!/usr/bin/env python3
"""A client of the Handle Watcher service in Python's standard library alone, written from PROTOCOL.md.

    python3 examples/python/plain_client.py [ADDRESS]

ADDRESS is the service's socket, a path or @name; without it HANDLE_WATCHER_SOCKET says it. The demo has the service
wait for a pipe, a timer and a child, all at once, and prints what came.
"""

import array
import os
import socket
import struct
import subprocess
import sys
import time
from urllib.parse import unquote

READABLE, WRITABLE, PEER_CLOSED, PRIORITY, ERROR = 1, 2, 4, 8, 16
ONCE, EDGE = 0, 1
READY, DEADLINE, TIMER, ENDED = 1, 3, 4, 7
HELLO, WATCH, CHANGE, ARM, PAUSE, UNWATCH, CLOSE, SET_TIMER, CANCEL_TIMER, PING, ECHO = range(1, 12)
STATS, BYE = 12, 16
REPLY, EVENT = 64, 128
CODES = ("OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
         "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
         "UNAUTHENTICATED").split()


class StatusError(Exception):
    """A call failed, or the session is over: one of the 17 codes and a message."""

    def __init__(self, code, message):
        super().__init__(f"{CODES[code]}: {message}")
        self.code = code


class Event:
    """What the service tells: see the table of events in PROTOCOL.md."""

    def __init__(self, frame):
        kind, *values, length = struct.unpack_from("<IIQQIIIi", frame, 4)
        if kind != EVENT:
            raise StatusError(3, f"a frame of kind {kind} came where an event was expected")
        self.kind, self.id, self.token, self.satisfied, self.satisfiable, self.count = values
        self.code = to_code(frame[44:44 + length])


def to_code(digits):
    number = int(digits) if digits.isdigit() and len(digits) <= 2 else 2
    return number if number < len(CODES) else 2


def data(raw):
    """A string or data: its length, its bytes, zeros up to a multiple of 4."""
    return struct.pack("<i", len(raw)) + raw + bytes(-len(raw) % 4)


def read_data(frame, offset):
    """The bytes at this offset, and the offset behind them."""
    (length,) = struct.unpack_from("<i", frame, offset)
    start = offset + 4
    if not 0 <= length <= len(frame) - start:
        raise StatusError(3, f"a length of {length} at offset {offset} is beyond its frame")
    return frame[start:start + length], start + length + -length % 4


class Frames:
    """Cuts frames off a stream socket."""

    def __init__(self, stream):
        self.stream = stream
        self.buffer = b""
        self.descriptors = []
        self.limit_bytes = 4096

    def next(self):
        """The next frame, its size word included. Blocks until it is whole."""
        while True:
            if len(self.buffer) >= 4:
                size = 4 + struct.unpack_from("<I", self.buffer)[0]
                if size > self.limit_bytes:
                    raise StatusError(3, f"the service sent a frame of {size} bytes")
                if len(self.buffer) >= size:
                    frame, self.buffer = self.buffer[:size], self.buffer[size:]
                    return frame
            room = socket.CMSG_SPACE(4)
            more, beside, _, _ = self.stream.recvmsg(65536, room, socket.MSG_CMSG_CLOEXEC)
            for level, kind, passed in beside:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    numbers = array.array("i")
                    numbers.frombytes(passed[:len(passed) - len(passed) % numbers.itemsize])
                    self.descriptors.extend(numbers)
            if not more:
                raise StatusError(14, "the service has hung up")
            self.buffer += more


class Client:
    """One session. For one thread: each call waits for its reply."""

    def __init__(self, address, name="python"):
        self.calls = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.calls.connect("\0" + address[1:] if address.startswith("@") else address)
        self.replies = Frames(self.calls)
        self.last_call = 0
        body = self.call(HELLO, data(b"handle-watcher") + struct.pack("<II", 1, 1) + data(name.encode()))
        self.version, self.session, frame_bytes, *self.limits = struct.unpack_from("<IQIIII", body)
        self.events = socket.socket(fileno=self.replies.descriptors.pop(0))
        self.events.setblocking(True)
        self.told = Frames(self.events)
        self.replies.limit_bytes = self.told.limit_bytes = frame_bytes

    def send(self, kind, call, values, descriptor=None):
        """Sends a request; its descriptor goes with the first byte."""
        payload = struct.pack("<III", kind, call, 0 if descriptor is None else 1) + values
        frame = struct.pack("<I", len(payload)) + payload
        if descriptor is not None:
            rights = array.array("i", [descriptor])
            frame = frame[self.calls.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]):]
        self.calls.sendall(frame)

    def call(self, kind, values=b"", descriptor=None):
        """Sends a request and waits for its reply. Gives the reply's body."""
        self.last_call += 1
        call = self.last_call
        self.send(kind, call, values, descriptor)
        while True:
            frame = self.replies.next()
            frame_kind, answered, _ = struct.unpack_from("<III", frame, 4)
            digits, offset = read_data(frame, 16)
            message, offset = read_data(frame, offset)
            if frame_kind != REPLY or answered not in (0, call):
                continue
            code = to_code(digits)
            if code != 0 or answered == 0:
                raise StatusError(code, unquote(message.decode("ascii", "replace"), errors="replace"))
            return frame[offset:]

    def watch(self, id, handle, token, signals, mode=ONCE, deadline_ns=0, descriptor=None):
        self.call(WATCH, struct.pack("<QQQIIQ", id, handle, token, signals, mode, deadline_ns), descriptor)

    def change(self, id, token, signals, mode=ONCE):
        self.call(CHANGE, struct.pack("<QQII", id, token, signals, mode))

    def arm(self, id, token, deadline_ns=0):
        """Wants no reply, so it costs no wait. If the watch has ended, its Ended says so."""
        self.send(ARM, 0, struct.pack("<QQQ", id, token, deadline_ns))

    def pause(self, id):
        self.call(PAUSE, struct.pack("<Q", id))

    def unwatch(self, id):
        self.call(UNWATCH, struct.pack("<Q", id))

    def close_handle(self, handle):
        self.call(CLOSE, struct.pack("<Q", handle))

    def set_timer(self, id, token, deadline_ns, period_ns=0):
        self.call(SET_TIMER, struct.pack("<QQQQ", id, token, deadline_ns, period_ns))

    def cancel_timer(self, id):
        self.call(CANCEL_TIMER, struct.pack("<Q", id))

    def ping(self):
        self.call(PING)

    def echo(self, raw):
        return read_data(self.call(ECHO, data(raw)), 0)[0]

    def stats(self):
        """The service's counters by name."""
        body = self.call(STATS)
        (count,) = struct.unpack_from("<i", body)
        offset, counters = 4, {}
        for _ in range(count):
            name, offset = read_data(body, offset)
            (counters[name.decode()],) = struct.unpack_from("<Q", body, offset)
            offset += 8
        return counters

    def wait(self):
        """The next event. Blocks until there is one."""
        return Event(self.told.next())

    def close(self):
        """Ends the session in order."""
        self.call(BYE)
        self.calls.close()
        self.events.close()


def demo(address):
    client = Client(address, "plain_client.py")
    print(f"session {client.session}, version {client.version}")
    client.ping()
    assert client.echo(b"\0any bytes") == b"\0any bytes"

    reader, writer = os.pipe()
    client.watch(id=1, handle=1, token=100, signals=READABLE, descriptor=reader)
    client.set_timer(id=1, token=200, deadline_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 50_000_000)
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    process = os.pidfd_open(child.pid)
    client.watch(id=2, handle=2, token=300, signals=READABLE, descriptor=process)

    os.write(writer, b"hello")
    awaited = {"pipe", "timer", "child"}
    while awaited:
        event = client.wait()
        if event.kind == READY and event.id == 1:
            print(f"pipe: {os.read(reader, 1024).decode()} (token {event.token})")
            awaited.discard("pipe")
            client.arm(id=1, token=101)
        elif event.kind == TIMER:
            print(f"timer: fired {event.count} time (token {event.token})")
            awaited.discard("timer")
            child.stdin.close()
        elif event.kind == READY and event.id == 2:
            print(f"child: ended with {child.wait()} (token {event.token})")
            awaited.discard("child")
        else:
            raise SystemExit(f"an event that nobody asked for: {vars(event)}")

    # The same watch again: it was armed with another token.
    os.write(writer, b"again")
    event = client.wait()
    print(f"pipe: {os.read(reader, 1024).decode()} (token {event.token})")
    print(f"watches of this session: {client.stats()['session_watches']}")
    client.unwatch(1)
    client.close_handle(2)
    ended = client.wait()
    print(f"watch {ended.id}: ended, {CODES[ended.code]}")
    try:
        client.unwatch(1)
    except StatusError as error:
        print(f"unwatch again: {CODES[error.code]}")
    client.close()
    for descriptor in (reader, writer, process):
        os.close(descriptor)
    print("bye")


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("HANDLE_WATCHER_SOCKET")
    if not given:
        raise SystemExit("say where the service is: plain_client.py ADDRESS, or HANDLE_WATCHER_SOCKET=ADDRESS")
    demo(given)
